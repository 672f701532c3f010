"""The skills that environments train, and what each of them means."""

from __future__ import annotations

SKILL_AIMS: dict[str, str] = {
    "Mathematical Reasoning": "work out unknown quantities from how numbers change, and plan with exact arithmetic",
    "Logical Deduction": "rule out possibilities with each new fact until one is left",
    "Spatial Reasoning": "keep places, directions and shapes in mind while they move",
    "Pattern Recognition": "find the rule behind what happens and use it to foresee what comes next",
    "Optimization": "reach a goal with limited means by weighing costs against gains",
    "Causal Inference": "find out by own interventions what causes what, and act on it",
    "Strategic Planning": "choose moves that pay off later, against an opponent or a deadline",
    "Memory Recall": "keep what was seen earlier and use it when it is no longer shown",
    "Language Understanding": "act on the exact meaning of words, references and negations",
    "API Orchestration": "chain calls of which each needs what the one before returned",
    "Data Retrieval": "search and filter records until what is needed is found, then use it",
    "State Modification": "make several changes that depend on each other and leave everything else as it was",
    "Error Recovery": "understand a refusal, put right what caused it, and try again",
    "Tool Selection": "choose the tool that the present state calls for among similar ones",
    "Multi-Step Workflows": "carry out ordered steps that must each be complete before the next",
}
"""One phrase for each skill, for the designer."""


def skill_line(skill: str) -> str:
    """The skill's name and aim as the designer reads it; an unknown skill is its name alone."""
    aim = SKILL_AIMS.get(skill)
    return f"{skill}: {aim}." if aim else f"{skill}."
