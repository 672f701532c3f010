"""SPADE as an event-sourced daemon."""
