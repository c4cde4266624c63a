// Range cell migration correction and azimuth filter, along rows of one Doppler frequency each (sar.wgsl).

struct Parameters {
    unsigned rows;
    unsigned columns;
    // Runs of a row.
    unsigned runs;
};

struct Run {
    // Phase of the azimuth filter at the run's first cell.
    Complex phase;
    // Whole part and rest of that cell's migration, in 64ths of a cell.
    unsigned shift;
    float rest;
};

PASS(correct) {
    const Parameters &parameters = *(const Parameters *)arguments.parameters;
    const float *kernels = (const float *)arguments.buffers[0];
    const float *gains = (const float *)arguments.buffers[1];
    // Growth of the migration with each cell in 64ths of a cell, by rows; less than 0 for a row that becomes zero.
    const float *growths = (const float *)arguments.buffers[2];
    // Phases of the azimuth filter within a run, relative to its first cell, 64 for each row.
    const Complex *steps = (const Complex *)arguments.buffers[3];
    const Run *runs = (const Run *)arguments.buffers[4];
    const Complex *input = (const Complex *)arguments.buffers[5];
    Complex *output = (Complex *)arguments.buffers[6];
    unsigned number = invocation();
    if (number >= parameters.rows * parameters.columns) {
        return;
    }
    unsigned row = number / parameters.columns, cell = number % parameters.columns;
    float growth = growths[row];
    if (growth < 0) {
        output[number] = {0, 0};
        return;
    }
    Run run = runs[row * parameters.runs + cell / 64];
    unsigned offset = cell % 64;
    unsigned shift = run.shift + (unsigned)floorf(run.rest + (float)offset * growth + 0.5f);
    // Sample of the kernel's first weight is three before the cell's position.
    unsigned kernel = shift % 64, first = cell + shift / 64;
    Complex sum = {0, 0};
    for (unsigned tap = 0; tap < 8; tap++) {
        unsigned at = first + tap;
        if (at >= 3 && at - 3 < parameters.columns) {
            sum = sum + kernels[kernel * 8 + tap] * input[row * parameters.columns + at - 3];
        }
    }
    output[number] = (gains[cell] * sum) * (run.phase * steps[row * 64 + offset]);
}
