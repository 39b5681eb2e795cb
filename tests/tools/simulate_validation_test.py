"""Tests how benchmarks/simulate_validation.py handles profiles, predictions and measurements, and that its page
agrees with the files."""
import argparse
import json
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import published_profiles  # noqa: E402
import simulate_validation as validation  # noqa: E402


def prediction(step_ms, low, high, **more):
    return {"model": "mnist", "batch": 128, "wire": "shm", "strategy": "ddp", "cap": "25", "step_ms": step_ms,
            "communication_ms": 0.0, "interval_ms": [low, high], **more}


def rounded(value):
    """Rounds JSON to a number of digits on which all platforms agree."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return f"{value:.12g}" if isinstance(value, float) else value


class SimulateValidation(unittest.TestCase):
    def test_a_profile_is_scaled_to_the_steps_that_were_timed(self):
        profile = {"name": "net", "ranks": 2, "step_seconds": 0.1, "backward_seconds": 0.06,
                   "buckets": [{"bytes": 8, "ready_seconds": 0.04, "parameters": 1}]}
        scaled = validation.scaled(profile, 0.2)
        self.assertEqual((scaled["step_seconds"], scaled["ranks"]), (0.2, 2))
        self.assertAlmostEqual(scaled["backward_seconds"], 0.12)
        self.assertEqual(scaled["buckets"], [{"bytes": 8, "ready_seconds": 0.08, "parameters": 1}])

    def test_the_middle_of_profiles_has_their_medians(self):
        middle = validation.middle([{"name": "a", "x": [3, 1]}, {"name": "a", "x": [1, 5]}, {"name": "a", "x": [2, 9]}])
        self.assertEqual(middle, {"name": "a", "x": [2, 5]})

    def test_of_two_calibrations_the_faster_times_count(self):
        row = {"bytes": 4, "median_us": 5, "min_us": 1, "beside_us": 9, "taken_us": 2}
        self.assertEqual(validation.faster([row], [{**row, "median_us": 3, "taken_us": 4}]), [{**row, "median_us": 3}])

    def test_errors_are_shares_of_what_was_measured(self):
        outcomes = [validation.Outcome(prediction(10, 9, 11), [10, 10, 50]), validation.Outcome(prediction(10, 9, 11), [8, 8]),
                    validation.Outcome(prediction(10, 9, 11), [10.5])]
        self.assertEqual([each.hit for each in outcomes], [True, False, True])
        self.assertAlmostEqual(outcomes[1].error, 0.25)
        found = validation.summary(outcomes)
        self.assertAlmostEqual(found["median"], 0.5 / 10.5)
        self.assertAlmostEqual(found["within_12"], 2 / 3)
        self.assertAlmostEqual(found["hits"], 2 / 3)

    def test_intervals_are_wider_where_more_is_uncertain(self):
        settings = validation.ROUND_SETTINGS[2]
        row = {"step_ms": 100.0, "exposed_ms": 10.0, "taken_ms": 10.0, "buckets": 1}
        low, high = settings.interval({"wire": "gloo"}, row, 0.0)
        self.assertAlmostEqual(low + high, 200)
        self.assertAlmostEqual((high - low) / 2, (8.8 ** 2 + 10 ** 2 + 1) ** 0.5, places=2)
        self.assertLess(settings.interval({"wire": "gloo"}, row, 0.5)[0], low)

    def test_the_committed_predictions_are_those_of_the_rounds_and_of_the_page(self):
        page = (ROOT / "docs/benchmarks/simulate.md").read_text()
        for number, settings in validation.ROUND_SETTINGS.items():
            file = ROOT / f"docs/benchmarks/simulate_predictions_{number}.json"
            predictions = json.loads(file.read_text())["predictions"]
            options = argparse.Namespace(settings=settings, quick=False)
            self.assertEqual([validation.key_of(each) for each in predictions],
                             [validation.key_of(each) for each in validation.configurations(options)])
            self.assertGreaterEqual(len(predictions), 50)
            for each in predictions:
                low, high = each["interval_ms"]
                start = (f"| {each['model']} | {each['batch']} | {each['wire']} | {each['strategy']} | {each['cap']} | "
                         f"{each['step_ms']:.2f} | {low:.2f} to {high:.2f} |")
                self.assertEqual(page.count(start), 1, start)

    def test_the_profiles_of_others_are_what_their_program_writes(self):
        for name, content in published_profiles.PROFILES.items():
            file = ROOT / "benchmarks/profiles" / f"{name}.json"
            self.assertEqual(rounded(json.loads(file.read_text())), rounded(json.loads(json.dumps(content))), name)


if __name__ == "__main__":
    unittest.main()
