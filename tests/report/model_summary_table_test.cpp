#include <lockstep/report/model_summary_table.h>

#include <gtest/gtest.h>

#include <sstream>

namespace lockstep::report {
namespace {

ModelSummary sample_summary() {
  return {
      .modules =
          {{.type = "Net", .trainable = 1280, .frozen = 10, .output_shape = {64, 10}},
           {.name = "features", .type = "Sequential", .depth = 1, .trainable = 640},
           {.name = "fc", .type = "Linear", .depth = 1, .frozen = 10, .output_shape = {64, 10}}},
      .trainable = 1280,
      .frozen = 10,
      .parameter_bytes = 5160,
      .buffer_bytes = 48};
}

TEST(ModelSummaryTable, HasARowForEachModule) {
  EXPECT_EQ(table_text(sample_summary()),
            "name      type        parameters  output shape\n"
            "          Net              1,290  64 x 10\n"
            "features  Sequential         640  -\n"
            "fc        Linear              10  64 x 10\n"
            "1,280 trainable parameters, 10 frozen; parameters take 5.2 kB, buffers 48 B\n");
}

TEST(ModelSummaryTable, MarksShapesOfLastOperations) {
  ModelSummary summary = sample_summary();
  summary.modules[0].last_operation_shape = {64, 3, 5};
  summary.modules[1].last_operation_shape = {64, 3, 5};
  EXPECT_EQ(table_text(summary),
            "name      type        parameters  output shape\n"
            "          Net              1,290  64 x 10\n"
            "features  Sequential         640  ~ 64 x 3 x 5\n"
            "fc        Linear              10  64 x 10\n"
            "~ shape of the last operation with parameters; functions may follow in the module\n"
            "1,280 trainable parameters, 10 frozen; parameters take 5.2 kB, buffers 48 B\n");
}

TEST(ModelSummaryTable, StandsBetweenEmptyLines) {
  std::ostringstream out;
  ModelSummaryTable(out).on_model_summary(sample_summary());
  EXPECT_EQ(out.str(), "\n" + table_text(sample_summary()) + "\n");
}

}  // namespace
}  // namespace lockstep::report
