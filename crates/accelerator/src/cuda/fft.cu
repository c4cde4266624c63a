// Passes of Fourier transforms of many frames (fft.wgsl): Stockham's algorithm for powers of two, and Bluestein's for other
// sizes.
//
// Sample `index` of frame `frame` lies at `frame * frame_stride + index * sample_stride`: frames are rows, or columns.

struct Parameters {
    // Number of frames, and of invocations for each.
    unsigned frames;
    unsigned items;
    unsigned frame_stride;
    unsigned sample_stride;
    // Sign of the exponent: -1 forward, 1 inverse.
    float direction;
    float scale;
    // Logarithm of the size of the transforms that are combined, and distance of the factors in their table.
    unsigned width_log;
    unsigned factor_step;
    // Offset of the first frame in the caller's buffer, and strides there, for passes of Bluestein's algorithm.
    unsigned first;
    unsigned outer_frame_stride;
    unsigned outer_sample_stride;
    // Samples of the caller's frame.
    unsigned size;
};

// One invocation: its parameters, buffers, frame, and index in that.
struct Item {
    const Parameters &parameters;
    const Complex *factors;
    const Complex *input;
    Complex *output;
    bool is_valid;
    unsigned frame, index;

    // Neighbouring invocations have neighbouring samples: those of a row, or those of a column's neighbours.
    __device__ explicit Item(const Arguments &arguments)
        : parameters(*(const Parameters *)arguments.parameters),
          factors((const Complex *)arguments.buffers[0]),
          input((const Complex *)arguments.buffers[1]),
          output((Complex *)arguments.buffers[2]) {
        unsigned number = invocation();
        is_valid = number < parameters.frames * parameters.items;
        bool is_row = parameters.sample_stride == 1;
        frame = is_row ? number / parameters.items : number % parameters.frames;
        index = is_row ? number % parameters.items : number / parameters.frames;
    }

    __device__ unsigned inner(unsigned at) const {
        return frame * parameters.frame_stride + at * parameters.sample_stride;
    }

    __device__ unsigned outer(unsigned at) const {
        return parameters.first + frame * parameters.outer_frame_stride + at * parameters.outer_sample_stride;
    }

    // Turns by a quarter in the direction of the transform.
    __device__ Complex quarter(Complex a) const { return parameters.direction * Complex{-a.im, a.re}; }

    __device__ Complex load(unsigned number) const { return input[inner(index + number * parameters.items)]; }

    __device__ void store(unsigned radix_log, unsigned number, Complex value) const {
        unsigned rest = index & ((1u << parameters.width_log) - 1);
        unsigned first = ((index >> parameters.width_log) << (parameters.width_log + radix_log)) + rest;
        output[inner(first + (number << parameters.width_log))] = parameters.scale * value;
    }
};

// The passes of radix 2 and 4 are the first ones: they need no factors.

PASS(radix2) {
    Item item(arguments);
    if (!item.is_valid) {
        return;
    }
    Complex a = item.load(0), b = item.load(1);
    item.store(1, 0, a + b);
    item.store(1, 1, a - b);
}

PASS(radix4) {
    Item item(arguments);
    if (!item.is_valid) {
        return;
    }
    Complex a = item.load(0), b = item.load(1), c = item.load(2), d = item.load(3);
    Complex turned = item.quarter(b - d);
    item.store(2, 0, (a + c) + (b + d));
    item.store(2, 1, (a - c) + turned);
    item.store(2, 2, (a + c) - (b + d));
    item.store(2, 3, (a - c) - turned);
}

PASS(radix8) {
    Item item(arguments);
    if (!item.is_valid) {
        return;
    }
    Complex v[8];
    for (unsigned number = 0; number < 8; number++) {
        v[number] = item.load(number);
    }
    const Parameters &parameters = item.parameters;
    if (parameters.width_log > 0) {
        unsigned rest = item.index & ((1u << parameters.width_log) - 1);
        Complex entry = item.factors[rest * parameters.factor_step];
        Complex w1 = {entry.re, parameters.direction * entry.im};
        Complex w2 = w1 * w1, w3 = w2 * w1, w4 = w2 * w2;
        v[1] = v[1] * w1;
        v[2] = v[2] * w2;
        v[3] = v[3] * w3;
        v[4] = v[4] * w4;
        v[5] = v[5] * (w4 * w1);
        v[6] = v[6] * (w3 * w3);
        v[7] = v[7] * (w4 * w3);
    }
    // Transforms of 4 of the even and of the odd samples.
    Complex e0 = (v[0] + v[4]) + (v[2] + v[6]), e2 = (v[0] + v[4]) - (v[2] + v[6]);
    Complex e1 = (v[0] - v[4]) + item.quarter(v[2] - v[6]), e3 = (v[0] - v[4]) - item.quarter(v[2] - v[6]);
    Complex o0 = (v[1] + v[5]) + (v[3] + v[7]), o2 = (v[1] + v[5]) - (v[3] + v[7]);
    Complex o1 = (v[1] - v[5]) + item.quarter(v[3] - v[7]), o3 = (v[1] - v[5]) - item.quarter(v[3] - v[7]);
    const float eighth = 0.70710678118654752f;
    Complex t1 = eighth * (o1 + item.quarter(o1)), t2 = item.quarter(o2), t3 = eighth * (item.quarter(o3) - o3);
    item.store(3, 0, e0 + o0);
    item.store(3, 1, e1 + t1);
    item.store(3, 2, e2 + t2);
    item.store(3, 3, e3 + t3);
    item.store(3, 4, e0 - o0);
    item.store(3, 5, e1 - t1);
    item.store(3, 6, e2 - t2);
    item.store(3, 7, e3 - t3);
}

// Multiplies frames by a table. The factors are the table.
PASS(multiply) {
    Item item(arguments);
    if (item.is_valid) {
        unsigned at = item.inner(item.index);
        item.output[at] = item.input[at] * item.factors[item.index];
    }
}

// Multiplies the caller's frames by the chirp, and fills them up with zeros. The factors are the chirp.
PASS(spread) {
    Item item(arguments);
    if (item.is_valid) {
        bool is_inside = item.index < item.parameters.size;
        Complex value = {0, 0};
        if (is_inside) {
            value = item.input[item.outer(item.index)] * item.factors[item.index];
        }
        item.output[item.inner(item.index)] = value;
    }
}

// Multiplies the convolution's first samples by the chirp, and puts them into the caller's frames.
PASS(gather) {
    Item item(arguments);
    if (item.is_valid) {
        Complex value = item.input[item.inner(item.index)] * item.factors[item.index];
        item.output[item.outer(item.index)] = item.parameters.scale * value;
    }
}
