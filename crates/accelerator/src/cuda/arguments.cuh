// What each pass gets: its buffers in the order of its bindings, and its parameters.

struct Arguments {
    void *buffers[8];
    unsigned parameters[16];
};

#define PASS(name) extern "C" __global__ void name(Arguments arguments)

// Number of this invocation.
__device__ inline unsigned invocation() {
    return (blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
}

struct Complex {
    float re, im;
};

__device__ inline Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
__device__ inline Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
__device__ inline Complex operator*(float a, Complex b) { return {a * b.re, a * b.im}; }
__device__ inline Complex operator*(Complex a, Complex b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
