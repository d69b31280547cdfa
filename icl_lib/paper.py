"""The numbers that the paper reports, as printed: Tables 1 and 2 of Hagiwara (2026)."""

# Table 1, runs 1 to 10. Error: mean squared difference to least squares on 1000 new prompts, in units of y².
# Correlation: of 1/σ_{2,51} with 1/V over the same prompts.
TABLE_1_ERRORS = (0.00072, 0.00139, 0.00088, 0.00063, 0.00267, 0.00165, 0.00092, 0.00074, 0.00105, 0.00131)
TABLE_1_CORRELATIONS = (
    0.90608, -0.00510, 0.60064, 0.50725, 0.20170, 0.55747, 0.53876, 0.10411, 0.92632, 0.73416
)  # fmt: skip

# Table 2, run 1: the (3, 51) cell fitted by α0 + α1 (u − x̄) + α2 ȳ + α3 (C/V)(u − x̄), eq. (57). Standardised
# are those of α1, α2, α3.
TABLE_2_COEFFICIENTS = (0.00250, -0.00159, -0.2436, -0.22498)
TABLE_2_STANDARDISED = (-0.00453, -0.72452, -0.69403)
# Section 4.4: correlations of the same cell with its fit, and with the least squares prediction.
TABLE_2_FIT, TABLE_2_LSE = 0.99479, -0.99396
