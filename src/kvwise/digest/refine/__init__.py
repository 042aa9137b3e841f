"""A generator over the chunks: answers, summaries, labels, each within an exact token budget."""
