"""Runs PyTorch's own analyser on our dumps: it reports what went wrong, and nothing else.

Usage: flight_recorder_test.py FLIGHT_RECORDER_DUMPS
"""
import logging
import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest

try:
    from torch.distributed.flight_recorder import fr_trace
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

DUMPS = sys.argv.pop(1)

# The lines that the analyser must print for each program; none for a correct one.
FINDINGS = {
    "correct": [],
    "messages": [],
    "shapes_and_types": [],
    "another_collective": ["Collective sequence number: 1 has errors", "group info: world:default_pg",
                           "collective: gloo:all_reduce",
                           "error msg: Culprit rank 1; Error type: COLLECTIVE_TYPE_MISMATCH, Expected collective "
                           "type: 'all_reduce' does not match found collective type: 'broadcast'"],
    "another_size": ["error msg: Culprit rank 1; Error type: SIZE_OR_SYNTAX_MISMATCH, Expected input sizes: "
                     "'[[4]]' does not match found input sizes: '[[5]]'"],
    "another_type": ["error msg: Culprit rank 1; Error type: COLLECTIVE_DTYPE_MISMATCH, Expected dtypes: "
                     "'{'Float'}' does not match found dtype: '{'Float'}/{'Int'}/{'Int'}'"],
    "missing": ["Not all ranks joining collective, sequence number: 1", "missing ranks: {2}",
                "collective state: started"],
    "group_missing": ["Not all ranks joining collective, sequence number: 1", "group info: group/1",
                      "collective: gloo:broadcast", "missing ranks: {2}", "expected ranks: {0, 2}"],
    "message_missing": ["Not all ranks joining collective, sequence number: 3",
                        "group info: world, ranks 1 and 2", "missing ranks: {2}"],
}


class FlightRecorder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lockstep-flight-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        subprocess.run([DUMPS, folder.name], check=True)

    def analyse(self, program):
        with self.assertLogs("Flight Recorder", logging.INFO) as logs:
            logging.getLogger("Flight Recorder").info("begin")
            fr_trace.main([str(self.folder / program)])
        return [record.getMessage() for record in logs.records[1:]]

    def test_all_programs_are_analysed(self):
        self.assertEqual({path.name for path in self.folder.iterdir()}, set(FINDINGS) | {"unfinished"})

    def test_the_analyser_finds_what_is_wrong(self):
        for program, expected in FINDINGS.items():
            with self.subTest(program):
                lines = self.analyse(program)
                if not expected:
                    self.assertEqual(lines, [])
                for line in expected:
                    self.assertIn(line, lines)

    def dump(self, program, rank):
        with open(self.folder / program / f"rank_{rank}", "rb") as file:
            return pickle.load(file)

    def test_the_sizes_are_those_of_a_rank(self):
        piece, everything, none = [[2, 3]], [[3, 2, 3]], [[0]]
        expected = {"barrier": (none, none), "broadcast": (piece, piece), "reduce": (piece, piece),
                    "gather": (piece, everything), "all_gather": (piece, everything), "scatter": (everything, piece),
                    "reduce_scatter": (everything, piece), "all_to_all": (everything, everything)}
        not_on_the_root = {"gather": (piece, none), "scatter": (none, piece)}
        for rank in range(3):
            sizes = [(entry["profiling_name"].removeprefix("gloo:"), (entry["input_sizes"], entry["output_sizes"]))
                     for entry in self.dump("correct", rank)["entries"]]
            self.assertEqual([each for name, each in sizes if name == "all_reduce"],
                             [(piece, piece), ([[1]], [[1]]), (none, none)])
            self.assertEqual({name: each for name, each in sizes if name != "all_reduce"},
                             expected if rank == 1 else expected | not_on_the_root)

    def test_a_shape_of_many_dimensions_is_flat(self):
        entries = self.dump("shapes_and_types", 1)["entries"]
        self.assertEqual([entry["input_sizes"] for entry in entries[:3]],
                         [[[1, 2, 3, 4, 5, 6]], [[5040]], [[2 ** 40]]])
        self.assertEqual(entries[2]["output_sizes"], [[2, 2 ** 40]])

    def test_a_shape_with_a_size_above_32_bits_is_flat(self):
        entries = self.dump("shapes_and_types", 1)["entries"]
        self.assertEqual([entry["input_sizes"] for entry in entries[3:5]], [[[2 ** 33]], [[2 ** 34]]])

    def test_messages_are_operations_of_two_ranks(self):
        # The k-th message of a direction has the number 2 k upwards and 2 k + 1 downwards.
        expected = {0: [("0 and 2", "send 0->1", 0), ("0 and 1", "send 0->1", 0), ("0 and 2", "recv 0<-1", 1),
                        ("0 and 1", "send 0->1", 2)],
                    1: [("0 and 1", "recv 1<-0", 0), ("0 and 1", "recv 1<-0", 2)],
                    2: [("0 and 2", "send 1->0", 1), ("0 and 2", "recv 1<-0", 0)]}
        for rank, messages in expected.items():
            dump = self.dump("messages", rank)
            *entries, barrier = dump["entries"]
            self.assertEqual([(entry["process_group"], entry["profiling_name"], entry["collective_seq_id"],
                               entry["p2p_seq_id"], entry["is_p2p"], entry["number"]) for entry in entries],
                             [((f"world, ranks {ranks}", "undefined"), f"gloo:{name}", number, number, True, i)
                              for i, (ranks, name, number) in enumerate(messages)])
            self.assertEqual((barrier["profiling_name"], barrier["collective_seq_id"], barrier["p2p_seq_id"],
                              barrier["is_p2p"]), ("gloo:barrier", 0, 0, False))
            ranks = {"world": "[0, 1, 2]"} | {f"world, ranks {pair}": f"[{pair.replace(' and', ',')}]"
                                              for pair, _, _ in messages}
            self.assertEqual({name: group["ranks"] for name, group in dump["pg_config"].items()}, ranks)
            self.assertEqual(dump["pg_status"], {"0": {"last_enqueued_collective": 0, "last_started_collective": 0,
                                                       "last_completed_collective": 0}}, "messages do not count")

    def test_an_operation_has_its_state(self):
        dump = self.dump("unfinished", 1)
        entries = dump["entries"]
        self.assertEqual([entry["state"] for entry in entries],
                         ["completed", "started", "scheduled", "scheduled", "started"])
        for key, expected in {"retired": [True, False, False, False, False],
                              "failed": [False, False, True, False, False]}.items():
            self.assertEqual([entry[key] for entry in entries], expected, key)
        for key, expected in {"time_created_ns": [True, True, True, True, True],
                              "time_discovered_started_ns": [True, True, False, False, True],
                              "time_discovered_completed_ns": [True, False, False, False, False]}.items():
            self.assertEqual([entry[key] is not None for entry in entries], expected, key)
        self.assertEqual(dump["pg_status"], {"0": {"last_enqueued_collective": 3, "last_started_collective": 1,
                                                   "last_completed_collective": 0}})
        receive = entries[-1]
        self.assertEqual(receive["process_group"], ("world, rank 1 from any", "undefined"))
        self.assertEqual((receive["profiling_name"], receive["collective_seq_id"]), ("gloo:recv 0<-0", 4))
        self.assertEqual(dump["pg_config"]["world, rank 1 from any"]["ranks"], "[1]")

    def test_types_have_the_names_of_pytorch(self):
        names = ["Float", "Double", "Half", "BFloat16", "Char", "Short", "Int", "Long", "Byte", "Bool", "Byte"]
        entries = self.dump("shapes_and_types", 0)["entries"][5:]
        self.assertEqual([entry["input_dtypes"] for entry in entries], [[name] for name in names])
        self.assertEqual([entry["output_dtypes"] for entry in entries], [[name] for name in names])

    def test_the_fields_are_those_of_pytorch(self):
        dump = self.dump("missing", 1)
        self.assertEqual(dump["version"], "2.10")
        self.assertEqual(dump["pg_config"],
                         {"world": {"name": "world", "desc": "default_pg", "ranks": "[0, 1, 2]"}})
        self.assertEqual(dump["pg_status"], {"0": {"last_enqueued_collective": 1,
                                                   "last_started_collective": 1,
                                                   "last_completed_collective": 0}})
        done, failed = dump["entries"]
        self.assertEqual(failed["process_group"], ("world", "default_pg"))
        self.assertEqual([done["state"], failed["state"]], ["completed", "started"])
        self.assertEqual([done["retired"], failed["retired"], failed["failed"]], [True, False, True])
        self.assertEqual([failed["call"], failed["number"]], ["all_reduce[float32, 4]", 1])
        self.assertLessEqual(done["time_created_ns"], done["time_discovered_started_ns"])
        self.assertLessEqual(done["time_discovered_started_ns"], done["time_discovered_completed_ns"])
        self.assertIsNone(failed["time_discovered_completed_ns"])


if __name__ == "__main__":
    unittest.main()
