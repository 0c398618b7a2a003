"""Who proposes tokens: one module a method, none known to the loop."""
