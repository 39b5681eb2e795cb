#include <lockstep/data/datasets/batch_structure.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <torch/ordered_dict.h>

#include <lockstep/core/strings.h>
#include <lockstep/data/loader/loaded_batch.h>

namespace lockstep::testing_support {

// A type of another library, for which an each_tensor() is defined beside it.
class Sealed {
 public:
  torch::Tensor& inside() { return inside_; }
  const torch::Tensor& inside() const { return inside_; }

 private:
  torch::Tensor inside_;
};

template <class T, class F>
  requires std::same_as<std::remove_const_t<T>, Sealed>
void each_tensor(T& sealed, F&& f) {
  f(sealed.inside());
}

namespace {

using ::testing::ElementsAre;

torch::Tensor number(std::int64_t value) { return torch::scalar_tensor(value, torch::kInt64); }

// The numbers in a batch's tensors, in the order of the visit; -1 for undefined tensors.
template <class T>
std::vector<std::int64_t> numbers(const T& batch) {
  std::vector<std::int64_t> seen;
  for_each_tensor(batch, [&](const torch::Tensor& tensor) {
    seen.push_back(tensor.defined() ? tensor.item<std::int64_t>() : -1);
  });
  return seen;
}

struct Boxes {
  torch::Tensor corners;
  std::array<torch::Tensor, 2> both;
};

struct Everything {
  torch::Tensor first;
  std::int64_t count = 7;
  Boxes boxes;
  std::vector<Boxes> more;
  std::map<std::string, torch::Tensor> by_name;
  std::optional<torch::Tensor> maybe;
  std::optional<double> scale = 0.5;
  std::tuple<torch::Tensor, std::string> pair;
  std::vector<std::string> names;
  std::filesystem::path file;
  Sealed sealed;
  torch::Tensor last;
};

Everything everything() {
  Everything batch;
  batch.first = number(1);
  batch.boxes = {number(2), {number(3), number(4)}};
  batch.more = {{number(5), {number(6), number(7)}}, {number(8), {}}};
  batch.by_name = {{"a", number(9)}, {"b", number(10)}};
  batch.maybe = number(11);
  batch.pair = {number(12), "twelve"};
  batch.names = {"x", "y"};
  batch.file = "folder/file";
  batch.sealed.inside() = number(13);
  batch.last = number(14);
  return batch;
}

TEST(BatchStructure, VisitsEveryTensorInTheOrderOfDeclaration) {
  EXPECT_THAT(numbers(everything()),
              ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, -1, -1, 9, 10, 11, 12, 13, 14));
  Everything batch = everything();
  batch.maybe.reset();
  batch.more.clear();
  EXPECT_THAT(numbers(batch), ElementsAre(1, 2, 3, 4, 9, 10, 12, 13, 14));
  for_each_tensor(batch, [](torch::Tensor& tensor) { tensor = tensor + 100; });
  EXPECT_THAT(numbers(batch), ElementsAre(101, 102, 103, 104, 109, 110, 112, 113, 114));
}

TEST(BatchStructure, TensorsAndTheirContainersAreBatches) {
  EXPECT_THAT(numbers(number(3)), ElementsAre(3));
  EXPECT_THAT(numbers(std::tuple(number(1), number(2))), ElementsAre(1, 2));
  EXPECT_THAT(numbers(std::pair(number(1), 2.0)), ElementsAre(1));
  EXPECT_THAT(numbers(std::vector{number(4), number(5)}), ElementsAre(4, 5));
  EXPECT_THAT(numbers(std::vector<float>{1, 2}), ElementsAre());
}

TEST(BatchStructure, HashMapsAreVisitedInTheOrderOfTheirKeys) {
  std::unordered_map<std::string, torch::Tensor> batch;
  for (const char* key : {"d", "b", "e", "a", "c"}) batch[key] = number(key[0]);
  EXPECT_THAT(numbers(batch), ElementsAre('a', 'b', 'c', 'd', 'e'));
  for_each_tensor(batch, [](torch::Tensor& tensor) { tensor = tensor + 1; });
  EXPECT_EQ(batch.at("a").item<std::int64_t>(), 'b');
}

TEST(BatchStructure, OrderedDictsAreVisitedInTheirOwnOrder) {
  torch::OrderedDict<std::string, torch::Tensor> batch;
  batch.insert("z", number(1));
  batch.insert("y", number(2));
  EXPECT_THAT(numbers(batch), ElementsAre(1, 2));
}

// Records the tensors that it visits.
struct Observer {
  std::string seen;
  void operator()(const torch::Tensor& tensor) { seen += str(tensor.item<std::int64_t>(), ' '); }
  template <class Key>
  void key(const Key& key) {
    seen += str(key, ':');
  }
};

TEST(BatchStructure, AVisitorMayAskForTheKeys) {
  torch::OrderedDict<std::string, torch::Tensor> dict;
  dict.insert("x", number(3));
  const std::tuple batch(std::map<int, torch::Tensor>{{7, number(1)}, {8, number(2)}}, dict);
  Observer observer;
  for_each_tensor(batch, observer);
  EXPECT_EQ(observer.seen, "7:1 8:2 x:3 ");
}

struct One {
  torch::Tensor a;
};
struct Five {
  torch::Tensor a, b, c, d, e;
};
struct Eleven {
  torch::Tensor a, b, c, d, e, f, g, h, i, j, k;
};

TEST(BatchStructure, CountsMembers) {
  EXPECT_EQ(numbers(One()).size(), 1U);
  EXPECT_EQ(numbers(Five()).size(), 5U);
  EXPECT_EQ(numbers(Eleven()).size(), 11U);
}

TEST(LoadedBatch, TakesABatchApartAndPutsItTogetherAgain) {
  LoadedBatch loaded;
  EXPECT_FALSE(loaded.batch<Everything>().first.defined());
  for (int round = 0; round < 2; ++round) {
    loaded.store(everything());
    EXPECT_EQ(loaded.tensors.size(), 16U);
    EXPECT_THAT(numbers(std::any_cast<const Everything&>(loaded.frame)), ::testing::Each(-1))
        << "the frame keeps no tensor alive";
    for (torch::Tensor& tensor : loaded.tensors) {
      if (tensor.defined()) tensor = tensor * 2;
    }
    const Everything batch = loaded.batch<Everything>();
    EXPECT_THAT(numbers(batch),
                ElementsAre(2, 4, 6, 8, 10, 12, 14, 16, -1, -1, 18, 20, 22, 24, 26, 28));
    EXPECT_EQ(batch.count, 7);
    EXPECT_THAT(batch.names, ElementsAre("x", "y"));
    EXPECT_EQ(std::get<1>(batch.pair), "twelve");
    EXPECT_EQ(batch.file, "folder/file");
  }
}

}  // namespace
}  // namespace lockstep::testing_support
