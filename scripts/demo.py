"""`make demo`: the main job on real models, as a user would type it.

Prints every command before it runs it. Models come from packages in the environment:
SmolLM2 135M and Gemma 3 270M; Qwen3 8B is only a header (no weights), which is enough to plan.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from models import gemma3, smollm2  # noqa: E402

QWEN = ROOT / "tests/zoo/models/qwen3-8b.json.gz"


def step(title: str, *arguments: str | Path) -> None:
    """Show a command, run it, and stop the demo when it fails."""
    words = ["kvwise", *(str(word) for word in arguments)]
    print(f"\n\033[1m# {title}\033[0m" if sys.stdout.isatty() else f"\n# {title}")
    print("$ " + shlex.join(Path(w).name if w.endswith((".gguf", ".gz")) else w for w in words))
    sys.stdout.flush()
    done = subprocess.run([sys.executable, "-m", *words], env=os.environ, check=False)
    if done.returncode:
        raise SystemExit(f"demo: that ended with exit code {done.returncode}")


def main() -> None:
    small, second = smollm2(), gemma3()
    step("What is this file?", "inspect", small)
    step("The best settings for this machine", "plan", small, "--goal", "chat")
    step("The same on a card that is not here", "plan", small, "--gpu", "RTX 4060")
    step("A model that is not here either: only its header is read",
         "plan", QWEN, "--gpu", "RTX 4060", "--prompt-tokens", "3982")  # fmt: skip
    step("Is it true? Load SmolLM2 for real and compare, byte for byte",
         "verify", small, "-c", "4096", "-ctk", "q8_0", "-ctv", "q8_0")  # fmt: skip
    step("And Gemma 3, whose window layers have a cache of their own",
         "verify", second, "-c", "4096")  # fmt: skip


if __name__ == "__main__":
    main()
