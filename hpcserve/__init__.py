"""hpcserve: place, serve and measure prefill/decode-disaggregated LLM serving on Slurm clusters."""

__all__ = ["__version__"]

__version__ = "0.1.0"
