// Filter with real coefficients on complex samples, which keeps one output of some (fir.wgsl).
//
// The samples before the block lie in a buffer of their own: its last one is the sample before the block's first.

struct Parameters {
    unsigned outputs;
    unsigned taps;
    unsigned decimation;
};

PASS(filter_block) {
    const Parameters &parameters = *(const Parameters *)arguments.parameters;
    const Complex *block = (const Complex *)arguments.buffers[0];
    const Complex *history = (const Complex *)arguments.buffers[1];
    const float *taps = (const float *)arguments.buffers[2];
    Complex *output = (Complex *)arguments.buffers[3];
    unsigned number = invocation();
    if (number >= parameters.outputs) {
        return;
    }
    unsigned newest = number * parameters.decimation;
    unsigned inside = min(parameters.taps, newest + 1);
    Complex sum = {0, 0};
    for (unsigned tap = 0; tap < inside; tap++) {
        sum = sum + taps[tap] * block[newest - tap];
    }
    for (unsigned tap = inside; tap < parameters.taps; tap++) {
        sum = sum + taps[tap] * history[parameters.taps - 1 + newest - tap];
    }
    output[number] = sum;
}
