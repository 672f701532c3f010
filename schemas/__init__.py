"""The words of the house: events, records and vocabularies. Imports nothing of ours."""
