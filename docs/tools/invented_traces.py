"""The invented traces of scenarios/traces, which docs/traces.md describes: draws, and no measurements.

python docs/tools/invented_traces.py     writes rides.csv, plugged.csv and homes.csv to the working directory
"""

import numpy as np

rng = np.random.default_rng(19)

# A random walk around Huang et al.'s medians of LTE, with a tunnel in each ride.
with open("rides.csv", "w") as file:
    print("user,from_s,up_mbps,down_mbps,period_s", file=file)
    for user in range(8):
        factor = np.exp(np.cumsum(rng.normal(0, 0.25, 36)))
        factor /= np.median(factor)
        factor[rng.integers(36)] = 0.0
        for k, f in enumerate(factor):
            print(f"{user},{5 * k},{5.6 * f:.3f},{12.7 * f:.3f},180", file=file)

# In minutes, as a short run would see nothing of a night.
with open("plugged.csv", "w") as file:
    print("user,from_s,to_s,period_s", file=file)
    for user in range(12):
        begin, length = rng.uniform(0, 240), rng.uniform(150, 360)
        for low, high in ((begin, min(begin + length, 400)), (0, begin + length - 400)):
            if high > low:
                print(f"{user},{low:.1f},{high:.1f},400", file=file)

# Fixed lines, asymmetric.
with open("homes.csv", "w") as file:
    print("uplink_mbps,downlink_mbps,latency_s", file=file)
    for _ in range(24):
        down = 40 * np.exp(rng.normal(0, 0.8))
        print(f"{down * rng.uniform(0.1, 0.5):.2f},{down:.2f},{rng.uniform(0.008, 0.03):.4f}", file=file)
