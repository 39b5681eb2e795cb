"""Starts programs for the benchmarks."""
import subprocess


def run(command, seconds):
    """Returns what the command prints."""
    words = [str(word) for word in command]
    try:
        result = subprocess.run(words, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"error: did not end in {seconds:g} s (--limit): {' '.join(words)}") from None
    if result.returncode:
        raise SystemExit(f"error: ended with {result.returncode}: {' '.join(words)}: {result.stderr.strip()[-500:]}")
    return result.stdout
