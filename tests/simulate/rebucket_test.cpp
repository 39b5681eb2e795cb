#include <lockstep/simulate/rebucket.h>

#include <gtest/gtest.h>

namespace lockstep::simulate {
namespace {

const std::vector<ProfileBucket> kRecorded = {
    {.bytes = 1 * kMebibyte, .ready_seconds = 0.1, .parameters = 4},
    {.bytes = 9 * kMebibyte, .ready_seconds = 0.2, .parameters = 1},
    {.bytes = 2 * kMebibyte, .ready_seconds = 0.3, .parameters = 2},
    {.bytes = 0.5 * kMebibyte, .ready_seconds = 0.4, .parameters = 8}};

double bytes_of(const std::vector<ProfileBucket>& buckets) {
  double sum = 0;
  for (const ProfileBucket& bucket : buckets) sum += bucket.bytes;
  return sum;
}

TEST(Rebucket, KeepsBytesParametersAndOrder) {
  for (const double cap : {0.01, 0.3, 1.0, 2.5, 5.0, 25.0, 1e5}) {
    const auto buckets = rebucket(kRecorded, bucket_sizes(cap));
    EXPECT_NEAR(bytes_of(buckets), bytes_of(kRecorded), 1) << cap;
    std::int64_t parameters = 0;
    double before = 0;
    for (const ProfileBucket& bucket : buckets) {
      parameters += bucket.parameters;
      EXPECT_GE(bucket.ready_seconds, before) << cap;
      before = bucket.ready_seconds;
    }
    EXPECT_EQ(parameters, 15) << cap;
    EXPECT_DOUBLE_EQ(buckets.back().ready_seconds, 0.4) << cap;
  }
}

TEST(Rebucket, ClosesABucketThatHasReachedItsCap) {
  const auto buckets = rebucket(kRecorded, bucket_sizes(10));
  ASSERT_EQ(buckets.size(), 3U);  // 1 MiB first, then 9 + 2 MiB, then the rest
  EXPECT_DOUBLE_EQ(buckets[0].bytes, 1 * kMebibyte);
  EXPECT_DOUBLE_EQ(buckets[1].bytes, 11 * kMebibyte);
  EXPECT_DOUBLE_EQ(buckets[1].ready_seconds, 0.3);
  EXPECT_DOUBLE_EQ(buckets[2].bytes, 0.5 * kMebibyte);
  // One bucket holds everything.
  const double all = 100 * kMebibyte;
  EXPECT_EQ(rebucket(kRecorded, {.cap_bytes = all, .first_cap_bytes = all}).size(), 1U);
}

TEST(Rebucket, DividesBucketsThatAreLargerThanTheCapAsEvenParameters) {
  const auto buckets = rebucket(kRecorded, bucket_sizes(0.001));
  ASSERT_EQ(buckets.size(), 15U);
  EXPECT_DOUBLE_EQ(buckets[4].bytes, 9 * kMebibyte);  // a parameter is never divided
  EXPECT_DOUBLE_EQ(buckets[0].ready_seconds, 0.025);
  EXPECT_DOUBLE_EQ(buckets[5].ready_seconds, 0.25);
  const std::vector<ProfileBucket> one = {
      {.bytes = 8 * kMebibyte, .ready_seconds = 0.8, .parameters = 8}};
  EXPECT_EQ(rebucket(one, bucket_sizes(2)).size(), 5U);  // 1, 2, 2, 2 and 1 MiB
  EXPECT_EQ(rebucket(one, bucket_sizes(25)).size(), 2U);
}

// The last bucket holds what is left and says nothing of the cap, nor does the first.
TEST(Rebucket, DividesLargeBucketsBeforeASmallLastOne) {
  for (const double last : {1e-3, 0.1, 4.0, 26.0}) {
    const std::vector<ProfileBucket> recorded = {
        {.bytes = 1 * kMebibyte, .ready_seconds = 0.1, .parameters = 1},
        {.bytes = 26 * kMebibyte, .ready_seconds = 0.5, .parameters = 26},
        {.bytes = 26 * kMebibyte, .ready_seconds = 0.7, .parameters = 26},
        {.bytes = last * kMebibyte, .ready_seconds = 0.9, .parameters = 1}};
    const auto buckets = rebucket(recorded, bucket_sizes(5));
    // 1 MiB, then ten of 5 MiB, and 2 MiB with the last one.
    ASSERT_EQ(buckets.size(), 12U) << last;
    for (std::size_t i = 1; i < 11; ++i) EXPECT_NEAR(buckets[i].bytes, 5 * kMebibyte, 1) << last;
    EXPECT_NEAR(buckets.back().bytes, (2 + last) * kMebibyte, 1) << last;
    EXPECT_DOUBLE_EQ(buckets.back().ready_seconds, 0.9) << last;
  }
}

// With the run's own caps, the buckets are those of the run.
TEST(Rebucket, KeepsBucketsOfTheSameCap) {
  const std::vector<ProfileBucket> recorded = {
      {.bytes = 1.2 * kMebibyte, .ready_seconds = 0.1, .parameters = 3},
      {.bytes = 25.5 * kMebibyte, .ready_seconds = 0.5, .parameters = 9},
      {.bytes = 31 * kMebibyte, .ready_seconds = 0.7, .parameters = 20},
      {.bytes = 4 * kMebibyte, .ready_seconds = 0.9, .parameters = 30}};
  const auto buckets = rebucket(recorded, bucket_sizes(25));
  ASSERT_EQ(buckets.size(), recorded.size());
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    EXPECT_DOUBLE_EQ(buckets[i].bytes, recorded[i].bytes);
    EXPECT_DOUBLE_EQ(buckets[i].ready_seconds, recorded[i].ready_seconds);
  }
}

// The first bucket of a run exceeds its cap by up to its last parameter.
TEST(Rebucket, KeepsAFirstBucketUpToTwiceItsCap) {
  const auto first_of = [](double mebibytes, std::int64_t parameters) {
    const std::vector<ProfileBucket> recorded = {
        {.bytes = mebibytes * kMebibyte, .ready_seconds = 0.1, .parameters = parameters},
        {.bytes = 26 * kMebibyte, .ready_seconds = 0.5, .parameters = 26},
        {.bytes = 26 * kMebibyte, .ready_seconds = 0.7, .parameters = 26},
        {.bytes = 1 * kMebibyte, .ready_seconds = 0.9, .parameters = 1}};
    return rebucket(recorded, bucket_sizes(5)).front();
  };
  EXPECT_DOUBLE_EQ(first_of(1.5, 3).bytes, 1.5 * kMebibyte);
  EXPECT_EQ(first_of(1.5, 3).parameters, 3);
  EXPECT_DOUBLE_EQ(first_of(2, 4).bytes, 2 * kMebibyte);
  EXPECT_DOUBLE_EQ(first_of(2.5, 5).bytes, 1 * kMebibyte);
  EXPECT_EQ(first_of(2.5, 5).parameters, 2);
  EXPECT_DOUBLE_EQ(first_of(2.5, 1).bytes, 2.5 * kMebibyte) << "a parameter is never divided";
}

TEST(Rebucket, HasTheCapsOfDdp) {
  EXPECT_DOUBLE_EQ(bucket_sizes(25).cap_bytes, 25 * kMebibyte);
  EXPECT_DOUBLE_EQ(bucket_sizes(25).first_cap_bytes, kMebibyte);
  EXPECT_DOUBLE_EQ(bucket_sizes(0.5).cap_bytes, 0.5 * kMebibyte);
  EXPECT_DOUBLE_EQ(bucket_sizes(0.5).first_cap_bytes, 0.5 * kMebibyte);
  EXPECT_TRUE(rebucket({}, bucket_sizes(25)).empty());
}

}  // namespace
}  // namespace lockstep::simulate
