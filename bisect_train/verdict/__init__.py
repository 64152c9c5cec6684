"""What recorded runs say: outcomes, the proof of the ends, evidence for a variant, the proof of an answer. Pure."""
