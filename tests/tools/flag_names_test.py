"""Checks the table of lockstep/cli/flag_names.cpp against the installed headers and the messages of the library."""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_layers  # noqa: E402
from public_headers import public_headers  # noqa: E402

TABLE = re.findall(r'\{"([^"]+)",\s*"(--[^"]+)"\}', (ROOT / "lockstep/cli/flag_names.cpp").read_text(encoding="utf-8"))
OPTIONS = [option for option, _ in TABLE]
# Without the key of an option in a map, RunInfo::recipe_options[model], which a message inserts.
MEMBERS = {option.split("[")[0] for option in OPTIONS}
MESSAGES = [message for room in check_layers.ROOMS if room != "cli" for path in (ROOT / "lockstep" / room).rglob("*")
            if path.suffix in check_layers.SUFFIXES for _, message in check_layers.messages(path.read_text(encoding="utf-8"))]
# The program sets these itself, or its flag takes other words.
WITHOUT_FLAG = {"DataParallelOptions::share_gpus", "DdpOptions::parameter_memory", "DdpOptions::sparse_parameters",
                "PipelineOptions::measure_memory", "PipelineOptions::tied", "ProcessGroupOptions::device",
                "ProgramOptions::namespaces"}


def members(structure):
    """The text of the installed headers between the braces of the structure."""
    for header in sorted(public_headers(ROOT)):
        found = re.search(rf"^struct (?:LOCKSTEP_API )?{structure} {{$(.*?)^}};$", (ROOT / header).read_text(encoding="utf-8"),
                          re.MULTILINE | re.DOTALL)
        if found:
            return re.sub(r"//[^\n]*", "", found[1])
    return ""


class FlagNames(unittest.TestCase):
    def test_the_table_has_entries(self):
        self.assertGreater(len(TABLE), 10)
        self.assertEqual(sorted(OPTIONS), sorted(set(OPTIONS)))

    def test_each_option_is_a_member_of_an_installed_header(self):
        for option in MEMBERS:
            with self.subTest(option=option):
                structure, member = re.fullmatch(r"(\w+)::(\w+)(?: = \w+)?", option).groups()
                self.assertRegex(members(structure), rf"\b{member}(?:\s*=[^;]*|\s*{{[^;]*}})?;")

    def test_each_option_stands_in_a_message_of_the_library(self):
        for option in MEMBERS:
            with self.subTest(option=option):
                self.assertTrue(any(re.search(rf"(?<![\w:]){re.escape(option)}(?!\w|::| = )", text) for text in MESSAGES))

    def test_each_option_in_a_message_has_a_flag_or_none_exists(self):
        named = {option for text in MESSAGES for option in re.findall(r"\b(?:\w+Options|DataRequest|RunInfo)::\w+", text)}
        self.assertEqual(named - MEMBERS, WITHOUT_FLAG)

    def test_each_choice_of_a_recipe_has_a_flag(self):
        choices = re.findall(r'k\w+Choice = "(\w+)"', (ROOT / "lockstep/recipes/recipe.h").read_text(encoding="utf-8"))
        self.assertIn("program", choices)
        self.assertEqual({option for option in OPTIONS if "[" in option},
                         {f"RunInfo::recipe_options[{choice}]" for choice in choices})


if __name__ == "__main__":
    unittest.main()
