"""Whether methods find what fairseq's search finds, sentence by sentence."""
