"""A trained block-NAT drafter (Xia et al., 2023; Ge et al., 2022)."""
