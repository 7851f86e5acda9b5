"""Spike times as they come: a synthetic NWB file of a population that rotates, and its truth.

    python examples/spikes.py session.nwb                 one session
    python examples/spikes.py monday.nwb tuesday.nwb      two, of one dynamics and other neurons

A hidden state of two numbers turns 1.5 times a second and fades within a second (eigenvalues
−1 ± 9.42i); each trial begins somewhere else. Sixty neurons fire at 5 to 25 spikes a second, their
logarithm linear in the state, at moments on no grid. Trials begin at odd times and last 1 to 1.6 s.
`h5py` writes it (pip install 'tenfold[nwb]'), in the layout that NWB 2 demands of what is read.
"""

import sys
from pathlib import Path

import h5py
import numpy as np

EIGENVALUE = -1.0 + 2j * np.pi * 1.5  # per second, and its conjugate
TICK = 1e-3  # seconds within which a rate is constant
NEURONS, TRIALS = 60, 80


def trial(rng: np.random.Generator, steps: int, loading: np.ndarray) -> tuple[list, np.ndarray]:
    """Spike times of every neuron since the trial's start, and the states [steps, 2]."""
    start = 2.0 * np.exp(2j * np.pi * rng.random()) * rng.uniform(0.7, 1.3)
    noise = (rng.normal(size=(2, steps)) * np.sqrt(0.5 * TICK)).T @ (1, 1j)
    state = np.empty(steps, complex)
    for t in range(steps):
        state[t] = start
        start = start * np.exp(EIGENVALUE * TICK) + noise[t]
    z = np.stack((state.real, state.imag), 1)
    rates = np.exp(z @ loading[:2] + loading[2])
    spikes = rng.random(rates.shape) < rates * TICK
    times = [
        (np.flatnonzero(fired) + rng.random(fired.sum())) * TICK for fired in spikes.T
    ]  # within its tick, anywhere
    return times, z


def write_session(path: Path, seed: int, neurons: int = NEURONS, trials: int = TRIALS) -> None:
    """One session: units, trials, and the state's first number as a series of behaviour."""
    rng = np.random.default_rng(seed)
    loading = np.concatenate(
        (rng.normal(size=(2, neurons)) * 0.6, np.log(rng.uniform(5, 25, (1, neurons))))
    )
    spikes: list[list[np.ndarray]] = [[] for _ in range(neurons)]
    starts, stops, moments, places, clock = [], [], [], [], 3.0
    for _ in range(trials):
        length = rng.uniform(1.0, 1.6)
        times, z = trial(rng, int(length / TICK), loading)
        for train, new in zip(spikes, times, strict=True):
            train.append(clock + new)
        starts.append(clock)
        stops.append(clock + length)
        moments.append(clock + np.arange(0, len(z), 7) * TICK)  # a camera at 143 Hz
        places.append(z[::7, 0])
        clock += length + rng.uniform(0.2, 0.9)
    with h5py.File(path, "w") as file:
        file.attrs["nwb_version"] = "2.7.0"
        file.attrs["neurodata_type"], file.attrs["namespace"] = "NWBFile", "core"
        units = file.create_group("units")
        units["id"] = np.arange(neurons)
        units["spike_times"] = np.concatenate([np.concatenate(train) for train in spikes])
        units["spike_times_index"] = np.cumsum([sum(map(len, train)) for train in spikes])
        table = file.create_group("intervals/trials")
        table["start_time"], table["stop_time"] = np.array(starts), np.array(stops)
        hand = file.create_group("processing/behavior/hand")
        hand["data"], hand["timestamps"] = np.concatenate(places), np.concatenate(moments)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("Usage: python examples/spikes.py FILE.nwb …")
    for number, name in enumerate(sys.argv[1:]):
        write_session(Path(name), seed=number, neurons=NEURONS - 12 * number)
        print(f"{name}: {NEURONS - 12 * number} neurons, {TRIALS} trials")
