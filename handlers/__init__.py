"""Reactions: one file an event, thin. Each reads the event, calls the machinery and appends the events that follow.

A handler may run twice for one event (a crash, a redelivery); every effect it has is idempotent: events are first
writer wins, blobs are named by content, memory is upserted by environment.
"""
