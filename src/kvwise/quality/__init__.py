"""What the types of a KV cache cost in quality: measured on the model itself, against f16.

    rows = measure(Request(model, launches, engine), store)        # Measurements of "fidelity"

`divergence` and `repetition` are arithmetic; `texts` and `prompts` what the model reads;
`forced` and `scorers` how probabilities are had, over HTTP or by llama-perplexity; `run` the units
of the job; `verdict` and `flags` what is made of the figures.
"""

from kvwise.quality.flags import quick_but_broken, sensitivity
from kvwise.quality.run import Request, measure
from kvwise.quality.texts import text_of

__all__ = ["Request", "measure", "quick_but_broken", "sensitivity", "text_of"]
