"""Fourier transforms of consecutive frames, as one would compute them with SciPy.

python transforms.py FILE: FILE has the paths of one frame of samples (complex64) and of the spectrum that is to be written, the
number of frames, the number of threads, and how often to transform all frames, as JSON.
"""

import json
import platform
import statistics
import sys
import time

import numpy as np
import scipy
import scipy.fft


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        order = json.load(file)
    frame = np.fromfile(order["frame"], dtype=np.complex64)
    samples = np.tile(frame, (order["frames"], 1))
    spectra = scipy.fft.fft(samples, axis=1, workers=order["threads"], overwrite_x=False)
    spectra[-1].tofile(order["spectrum"])
    seconds = []
    for _ in range(order["repeats"]):
        begin = time.perf_counter()
        spectra = scipy.fft.fft(samples, axis=1, workers=order["threads"], overwrite_x=False)
        seconds.append(time.perf_counter() - begin)
    answer = {
        "seconds": statistics.median(seconds),
        "versions": f"SciPy {scipy.__version__}, NumPy {np.__version__}, Python {platform.python_version()}",
    }
    print(json.dumps(answer))


main()
