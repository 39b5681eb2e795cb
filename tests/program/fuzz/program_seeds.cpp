#include <tests/formats/fuzz/seeds.h>
#include <tests/program/fuzz/program_targets.h>
#include <tests/program/pt2_bytes.h>

namespace lockstep::testing_support {

std::vector<Seed> fuzz_seeds() {
  ArchiveEntries large = pt2_entries();
  entry(large, "net/models/model.json") = large_model().dump();
  return {
      {"exported_graph", "graph_small", fuzz_exported_graph, small_model().dump()},
      {"exported_graph", "graph_large", fuzz_exported_graph, large_model().dump()},
      {"pt2_file", "pt2_file", fuzz_pt2_file, zip_of(pt2_entries())},
      {"pt2_file", "pt2_file_large", fuzz_pt2_file, zip_of(large)},
      {"pt2_file", "pt2_file_of_2_8", fuzz_pt2_file, zip_of(pt2_entries_of_2_8())},
      {"pt2_file", "pt2_file_of_2_7", fuzz_pt2_file, zip_of(pt2_entries_of_2_7())},
      {"size_expression", "expression", fuzz_size_expression, "2*(s0 + 1)**2//3 - Max(s77, 4) % 5"},
      {"size_expression", "expression_of_srepr", fuzz_size_expression,
       "Add(Mul(Integer(2), Symbol('s0', positive=True, integer=True)), Integer(-1))"},
  };
}

}  // namespace lockstep::testing_support
