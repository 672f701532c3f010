"""The corpus: documents in (``ingest``), stored once by content (``store``), drawn by seed and index, cut to length."""
