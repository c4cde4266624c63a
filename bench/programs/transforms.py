"""Fourier transforms of consecutive frames, or of the rows and columns of a scene, as one would compute them with SciPy.

python transforms.py FILE: FILE has the paths of one frame of samples (complex64) and of the spectrum that is to be written, the
number of frames, the number of threads, how often to transform all frames, and the passes, as JSON: each has an axis and a
direction.
"""

import json
import platform
import statistics
import sys
import time

import numpy as np
import scipy
import scipy.fft


def transform(samples, one_pass, threads, in_place):
    """Transforms all frames along one axis. Amplitudes stay as they are."""
    function = scipy.fft.ifft if one_pass["inverse"] else scipy.fft.fft
    return function(samples, axis=one_pass["axis"], norm="ortho", workers=threads, overwrite_x=in_place)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        order = json.load(file)
    frame = np.fromfile(order["frame"], dtype=np.complex64)
    samples = np.tile(frame, (order["frames"], 1))
    spectra = scipy.fft.fft(samples, axis=1, workers=order["threads"], overwrite_x=False)
    spectra[-1].tofile(order["spectrum"])
    # In place is faster where new memory costs more than the other array's cache lines.
    seconds = {True: [], False: []}
    for _ in range(order["repeats"]):
        for in_place, times in seconds.items():
            begin = time.perf_counter()
            for one_pass in order["passes"]:
                spectra = transform(samples if in_place else spectra, one_pass, order["threads"], in_place)
            times.append(time.perf_counter() - begin)
    answer = {
        "seconds": min(statistics.median(times) for times in seconds.values()),
        "versions": f"SciPy {scipy.__version__}, NumPy {np.__version__}, Python {platform.python_version()}",
    }
    print(json.dumps(answer))


main()
