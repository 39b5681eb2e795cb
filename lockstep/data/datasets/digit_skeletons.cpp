#include <lockstep/data/datasets/digit_skeletons.h>

#include <array>

namespace lockstep::data {
namespace {

// clang-format off
// A sharp corner is a point listed twice: the spline then has no room to round it.
const std::array<std::vector<Skeleton>, 10>& skeletons() {
  static const std::array<std::vector<Skeleton>, 10> table{{
      // 0: oval; narrow oval that does not close; oval begun at the side
      {{{{.5F, 0}, {.12F, .2F}, {0, .55F}, {.2F, .92F}, {.55F, 1}, {.9F, .8F}, {1, .4F},
         {.8F, .08F}, {.5F, 0}}},
       {{{.6F, .02F}, {.25F, .15F}, {.12F, .5F}, {.25F, .88F}, {.55F, 1}, {.8F, .75F}, {.85F, .35F},
         {.7F, .05F}, {.45F, .1F}}},
       {{{0, .45F}, {.15F, .85F}, {.5F, 1}, {.88F, .85F}, {1, .5F}, {.85F, .12F}, {.5F, 0},
         {.15F, .12F}, {0, .45F}}}},
      // 1: a line; with an upstroke; with upstroke and foot
      {{{{.55F, 0}, {.5F, .5F}, {.45F, 1}}},
       {{{.2F, .28F}, {.55F, 0}, {.55F, 0}, {.55F, .5F}, {.5F, 1}}},
       {{{.2F, .25F}, {.5F, 0}, {.5F, 0}, {.5F, .5F}, {.5F, 1}}, {{.15F, 1}, {.85F, 1}}}},
      // 2: round with a straight foot; with a loop at the foot; angular
      {{{{.05F, .25F}, {.25F, .03F}, {.65F, .02F}, {.88F, .25F}, {.7F, .55F}, {.3F, .8F},
         {.02F, 1}, {.02F, 1}, {.5F, 1}, {1, .97F}}},
       {{{.08F, .2F}, {.4F, 0}, {.8F, .12F}, {.8F, .45F}, {.45F, .8F}, {.1F, .95F}, {.05F, .8F},
         {.3F, .76F}, {.65F, .95F}, {1, .9F}}},
       {{{.05F, .08F}, {.5F, 0}, {.85F, .1F}, {.75F, .5F}, {.1F, .98F}, {.1F, .98F}, {.95F, 1}}}},
      // 3: two bows; flat top; bows that meet in a loop
      {{{{.05F, .12F}, {.45F, 0}, {.85F, .15F}, {.75F, .4F}, {.4F, .48F}, {.4F, .48F}, {.85F, .6F},
         {.92F, .85F}, {.5F, 1}, {.03F, .88F}}},
       {{{.08F, 0}, {.9F, .02F}, {.9F, .02F}, {.45F, .4F}, {.45F, .4F}, {.85F, .52F}, {.92F, .8F},
         {.55F, 1}, {.05F, .9F}}},
       {{{.1F, .1F}, {.5F, 0}, {.82F, .2F}, {.55F, .46F}, {.36F, .5F}, {.45F, .54F}, {.85F, .66F},
         {.8F, .93F}, {.4F, 1}, {.05F, .85F}}}},
      // 4: open, with its stem apart; closed; of one stroke with a rounded arm
      {{{{.2F, 0}, {.1F, .35F}, {.08F, .58F}, {.08F, .58F}, {.5F, .56F}, {.95F, .52F}},
         {{.75F, .05F}, {.72F, .5F}, {.7F, 1}}},
       {{{.65F, 0}, {.05F, .65F}, {.05F, .65F}, {1, .65F}}, {{.68F, 0}, {.68F, .5F}, {.68F, 1}}},
       {{{.12F, .05F}, {.1F, .4F}, {.35F, .55F}, {.75F, .45F}, {.85F, .05F}, {.85F, .05F},
         {.8F, .5F}, {.75F, 1}}}},
      // 5: with its bar apart; of one stroke; angular
      {{{{.15F, .02F}, {.12F, .42F}, {.12F, .42F}, {.5F, .35F}, {.9F, .52F}, {.85F, .88F},
         {.45F, 1}, {.03F, .88F}}, {{.15F, .02F}, {.92F, 0}}},
       {{{.92F, .02F}, {.25F, .03F}, {.25F, .03F}, {.15F, .42F}, {.15F, .42F}, {.6F, .38F},
         {.9F, .62F}, {.75F, .93F}, {.35F, 1}, {.05F, .92F}}},
       {{{.85F, 0}, {.2F, 0}, {.2F, 0}, {.2F, .45F}, {.2F, .45F}, {.75F, .48F}, {.88F, .72F},
         {.65F, .98F}, {.08F, 1}}}},
      // 6: a curve into a bow; a straight stem; a wide bow
      {{{{.75F, 0}, {.3F, .2F}, {.05F, .6F}, {.15F, .92F}, {.5F, 1}, {.85F, .85F}, {.8F, .58F},
         {.45F, .5F}, {.1F, .7F}}},
       {{{.45F, 0}, {.15F, .45F}, {.08F, .78F}, {.35F, 1}, {.75F, .95F}, {.88F, .7F}, {.6F, .52F},
         {.2F, .62F}, {.1F, .78F}}},
       {{{.9F, .08F}, {.5F, .02F}, {.12F, .35F}, {.05F, .75F}, {.4F, 1}, {.9F, .88F}, {.9F, .6F},
         {.5F, .48F}, {.1F, .62F}}}},
      // 7: plain; with a bar; with a hook at the left
      {{{{.03F, .03F}, {.5F, .02F}, {.95F, 0}, {.95F, 0}, {.6F, .5F}, {.4F, 1}}},
       {{{.03F, .05F}, {.95F, .02F}, {.95F, .02F}, {.62F, .5F}, {.4F, 1}}, {{.25F, .5F},
         {.85F, .46F}}},
       {{{.05F, .25F}, {.08F, .02F}, {.08F, .02F}, {.9F, .05F}, {.9F, .05F}, {.7F, .45F},
         {.55F, 1}}}},
      // 8: of one stroke; two ovals; begun at the top right
      {{{{.5F, .48F}, {.12F, .25F}, {.4F, 0}, {.8F, .15F}, {.65F, .42F}, {.3F, .58F}, {.08F, .82F},
         {.45F, 1}, {.88F, .82F}, {.7F, .58F}, {.5F, .48F}}},
       {{{.5F, 0}, {.18F, .2F}, {.45F, .46F}, {.8F, .25F}, {.5F, 0}}, {{.48F, .46F}, {.08F, .72F},
         {.5F, 1}, {.92F, .72F}, {.48F, .46F}}},
       {{{.88F, .15F}, {.5F, 0}, {.15F, .18F}, {.4F, .45F}, {.85F, .7F}, {.7F, .96F}, {.3F, .98F},
         {.1F, .75F}, {.5F, .48F}, {.88F, .15F}}}},
      // 9: with a straight stem; with a curved one; with a hook
      {{{{.82F, .22F}, {.5F, 0}, {.12F, .18F}, {.2F, .46F}, {.6F, .46F}, {.82F, .22F},
         {.82F, .22F}, {.8F, .6F}, {.75F, 1}}},
       {{{.85F, .3F}, {.55F, .02F}, {.12F, .15F}, {.15F, .45F}, {.55F, .52F}, {.85F, .3F},
         {.8F, .65F}, {.5F, .95F}, {.25F, 1}}},
       {{{.88F, .12F}, {.45F, 0}, {.1F, .25F}, {.35F, .5F}, {.75F, .38F}, {.88F, .12F}, {.9F, .6F},
         {.65F, .98F}, {.15F, .92F}}}},
  }};
  return table;
}
// clang-format on

}  // namespace

std::span<const Skeleton> digit_skeletons(int digit) { return skeletons().at(digit); }

Point catmull_rom(Point p0, Point p1, Point p2, Point p3, float t) {
  const auto blend = [t](float a, float b, float c, float d) {
    return 0.5F *
           (2 * b + t * ((c - a) + t * ((2 * a - 5 * b + 4 * c - d) + t * (3 * (b - c) + d - a))));
  };
  return {blend(p0.x, p1.x, p2.x, p3.x), blend(p0.y, p1.y, p2.y, p3.y)};
}

}  // namespace lockstep::data
