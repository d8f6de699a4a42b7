"""Predicted against measured: times fitted on one placement's runs, every other placement simulated from them."""
