// How `--help` describes options and breaks lines.
#include <lockstep/cli/help_format.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

namespace lockstep::cli {
namespace {

TEST(HelpFormat, SaysWhatAnOptionTakes) {
  HelpFormat format;
  CLI::App app("Test the help", "lockstep");
  int number = 7;
  bool flag = false;
  std::vector<int> list;
  std::vector<int> pair;
  std::vector<std::string> files;
  CLI::Option* const option = app.add_option("--number", number, "A number")->type_name("N");
  EXPECT_EQ(format.make_option_opts(option), " N");
  option->capture_default_str();
  EXPECT_EQ(format.make_option_opts(option), " N=7");
  option->required();
  EXPECT_EQ(format.make_option_opts(option), " N=7 (required)");
  EXPECT_EQ(format.make_option_opts(app.add_flag("--flag", flag, "A flag")), "");
  CLI::Option* const several = app.add_option("--list", list, "A list")->type_name("N");
  EXPECT_EQ(format.make_option_opts(several), " N ...");
  several->required();
  EXPECT_EQ(format.make_option_opts(several), " N ... (required)");
  CLI::Option* const two = app.add_option("--pair", pair, "A pair")->type_name("N")->expected(2);
  EXPECT_EQ(format.make_option_opts(two), " N x 2");
  CLI::Option* const positional = app.add_option("FILE", files, "Files")->expected(1);
  EXPECT_EQ(format.make_option_opts(positional), "");
  positional->required()->expected(3);
  EXPECT_EQ(format.make_option_opts(positional), " x 3 (required)");
}

// A description stands beside a name that leaves a blank before it, and below a longer one.
TEST(HelpFormat, PutsDescriptionsIntoAColumn) {
  HelpFormat format;
  format.column_width(20);
  const auto row = [&](const std::string& name, const std::string& description) {
    CLI::App app;
    return format.make_subcommand(app.add_subcommand(name, description));
  };
  EXPECT_EQ(row("list", "Show all"), "  list" + std::string(14, ' ') + "Show all\n");
  EXPECT_EQ(row("list", ""), "  list\n");
  const std::string seventeen(17, 'n');
  EXPECT_EQ(row(seventeen, "Show"), "  " + seventeen + " Show\n");
  EXPECT_EQ(row(seventeen + "n", "Show"),
            "  " + seventeen + "n\n" + std::string(20, ' ') + "Show\n");
  EXPECT_EQ(row(seventeen + "n", ""), "  " + seventeen + "n\n");
  // A flag has no type that would need room.
  CLI::App app;
  bool flag = false;
  const std::string name = "--" + std::string(15, 'n');
  EXPECT_EQ(format.make_option(app.add_flag(name, flag, "Show"), false), "  " + name + " Show\n");
}

// 80 of 100 columns are left for the description.
TEST(HelpFormat, BreaksDescriptionsBetweenWords) {
  HelpFormat format;
  format.column_width(20);
  const auto row = [&](const std::string& description) {
    CLI::App app;
    return format.make_subcommand(app.add_subcommand("a", description));
  };
  const std::string begin = "  a" + std::string(17, ' ');
  const std::string blanks(20, ' ');
  const std::string word(40, 'w');
  EXPECT_EQ(row(word + ' ' + std::string(39, 'x')),
            begin + word + ' ' + std::string(39, 'x') + '\n');
  EXPECT_EQ(row(word + ' ' + std::string(40, 'x')),
            begin + word + '\n' + blanks + std::string(40, 'x') + '\n');
  EXPECT_EQ(row(word + ' ' + word + ' ' + word + " end"),
            begin + word + '\n' + blanks + word + '\n' + blanks + word + " end\n");
  EXPECT_EQ(row(std::string(90, 'w') + " end"),
            begin + std::string(90, 'w') + '\n' + blanks + "end\n")
      << "a word is kept whole";
  // A line keeps its indentation, and its further parts have two blanks more.
  EXPECT_EQ(row("one:\n  " + word + ' ' + word + "\ntwo"), begin + "one:\n" + blanks + "  " + word +
                                                               '\n' + blanks + "    " + word +
                                                               '\n' + blanks + "two\n");
}

TEST(HelpFormat, BreaksTheDescriptionOfACommandAtTheFullWidth) {
  HelpFormat format;
  const std::string word(50, 'w');
  const CLI::App fits(word + ' ' + std::string(49, 'x'));
  EXPECT_EQ(format.make_description(&fits), word + ' ' + std::string(49, 'x') + '\n');
  const CLI::App broken(word + ' ' + word);
  EXPECT_EQ(format.make_description(&broken), word + '\n' + word + '\n');
}

TEST(HelpFormat, LeavesOneEmptyLineBetweenGroups) {
  HelpFormat format;
  CLI::App app("Test the help", "lockstep");
  int number = 0;
  for (const char* group : {"First", "Second"}) {
    app.add_option(std::string("--of-") + group, number, "A number")->group(group);
  }
  const std::string help = format.make_help(&app, "lockstep", CLI::AppFormatMode::Normal);
  EXPECT_EQ(help.find("\n\n\n"), std::string::npos) << help;
  EXPECT_NE(help.find("\n\nFirst:\n  --of-First"), std::string::npos) << help;
  EXPECT_NE(help.find("\n\nSecond:\n  --of-Second"), std::string::npos) << help;
}

TEST(HelpGroups, EndWithTheirObject) {
  CLI::App app;
  int number = 0;
  const std::string before = app.option_defaults()->get_group();
  {
    const HelpGroup group(app, "Own");
    EXPECT_EQ(app.add_option("--in", number)->get_group(), "Own");
  }
  EXPECT_EQ(app.add_option("--after", number)->get_group(), before);
}

}  // namespace
}  // namespace lockstep::cli
