"""Text to numpy arrays: tokenizers, corpora, examples, batches. numpy only, never JAX."""
