// Passes of Fourier transforms of many frames.
//
// Powers of two: Stockham's algorithm, whose result is in order without any sorting. A pass of radix R takes R samples that
// are a size / R apart, and combines transforms of `1 << width_log` samples to such of R times as many. Other sizes:
// Bluestein's algorithm, a convolution with a chirp, which is computed with transforms of a power of two.
//
// Sample `index` of frame `frame` lies at `frame * frame_stride + index * sample_stride`: frames are rows, or columns.

struct Parameters {
    // Number of frames, and of invocations for each.
    frames: u32,
    items: u32,
    frame_stride: u32,
    sample_stride: u32,
    // Sign of the exponent: -1 forward, 1 inverse.
    direction: f32,
    scale: f32,
    // Logarithm of the size of the transforms that are combined, and distance of the factors in their table.
    width_log: u32,
    factor_step: u32,
    // Offset of the first frame in the caller's buffer, and strides there, for passes of Bluestein's algorithm.
    first: u32,
    outer_frame_stride: u32,
    outer_sample_stride: u32,
    // Samples of the caller's frame.
    size: u32,
}

var<immediate> parameters: Parameters;

// First eighth of a circle, cosine and sine of t / size turns; or the table or chirp by which a pass multiplies.
@group(0) @binding(0) var<storage, read> factors: array<vec2f>;
@group(0) @binding(1) var<storage, read> input: array<vec2f>;
@group(0) @binding(2) var<storage, read_write> output: array<vec2f>;

struct Item {
    is_valid: bool,
    frame: u32,
    index: u32,
}

// Neighbouring invocations have neighbouring samples: those of a row, or those of a column's neighbours.
fn item_of(id: vec3u, groups: vec3u) -> Item {
    let number = id.x + id.y * groups.x * 64u;
    let is_valid = number < parameters.frames * parameters.items;
    if parameters.sample_stride == 1u {
        return Item(is_valid, number / parameters.items, number % parameters.items);
    }
    return Item(is_valid, number % parameters.frames, number / parameters.frames);
}

fn inner(frame: u32, index: u32) -> u32 {
    return frame * parameters.frame_stride + index * parameters.sample_stride;
}

fn outer(frame: u32, index: u32) -> u32 {
    return parameters.first + frame * parameters.outer_frame_stride + index * parameters.outer_sample_stride;
}

fn times(a: vec2f, b: vec2f) -> vec2f {
    return vec2f(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

// Turns by a quarter in the direction of the transform.
fn quarter(a: vec2f) -> vec2f {
    return parameters.direction * vec2f(-a.y, a.x);
}

fn load(item: Item, number: u32) -> vec2f {
    return input[inner(item.frame, item.index + number * parameters.items)];
}

fn store(item: Item, radix_log: u32, number: u32, value: vec2f) {
    let rest = item.index & ((1u << parameters.width_log) - 1u);
    let first = ((item.index >> parameters.width_log) << (parameters.width_log + radix_log)) + rest;
    output[inner(item.frame, first + (number << parameters.width_log))] = parameters.scale * value;
}

// The passes of radix 2 and 4 are the first ones: they need no factors.

@compute @workgroup_size(64)
fn radix2(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
    let item = item_of(id, groups);
    if !item.is_valid {
        return;
    }
    let a = load(item, 0u);
    let b = load(item, 1u);
    store(item, 1u, 0u, a + b);
    store(item, 1u, 1u, a - b);
}

@compute @workgroup_size(64)
fn radix4(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
    let item = item_of(id, groups);
    if !item.is_valid {
        return;
    }
    let a = load(item, 0u);
    let b = load(item, 1u);
    let c = load(item, 2u);
    let d = load(item, 3u);
    let turned = quarter(b - d);
    store(item, 2u, 0u, (a + c) + (b + d));
    store(item, 2u, 1u, (a - c) + turned);
    store(item, 2u, 2u, (a + c) - (b + d));
    store(item, 2u, 3u, (a - c) - turned);
}

@compute @workgroup_size(64)
fn radix8(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
    let item = item_of(id, groups);
    if !item.is_valid {
        return;
    }
    var v0 = load(item, 0u);
    var v1 = load(item, 1u);
    var v2 = load(item, 2u);
    var v3 = load(item, 3u);
    var v4 = load(item, 4u);
    var v5 = load(item, 5u);
    var v6 = load(item, 6u);
    var v7 = load(item, 7u);
    if parameters.width_log > 0u {
        let rest = item.index & ((1u << parameters.width_log) - 1u);
        let entry = factors[rest * parameters.factor_step];
        let w1 = vec2f(entry.x, parameters.direction * entry.y);
        let w2 = times(w1, w1);
        let w3 = times(w2, w1);
        let w4 = times(w2, w2);
        v1 = times(v1, w1);
        v2 = times(v2, w2);
        v3 = times(v3, w3);
        v4 = times(v4, w4);
        v5 = times(v5, times(w4, w1));
        v6 = times(v6, times(w3, w3));
        v7 = times(v7, times(w4, w3));
    }
    // Transforms of 4 of the even and of the odd samples.
    let e0 = (v0 + v4) + (v2 + v6);
    let e2 = (v0 + v4) - (v2 + v6);
    let e1 = (v0 - v4) + quarter(v2 - v6);
    let e3 = (v0 - v4) - quarter(v2 - v6);
    let o0 = (v1 + v5) + (v3 + v7);
    let o2 = (v1 + v5) - (v3 + v7);
    let o1 = (v1 - v5) + quarter(v3 - v7);
    let o3 = (v1 - v5) - quarter(v3 - v7);
    let eighth = 0.70710678118654752;
    let t1 = eighth * (o1 + quarter(o1));
    let t2 = quarter(o2);
    let t3 = eighth * (quarter(o3) - o3);
    store(item, 3u, 0u, e0 + o0);
    store(item, 3u, 1u, e1 + t1);
    store(item, 3u, 2u, e2 + t2);
    store(item, 3u, 3u, e3 + t3);
    store(item, 3u, 4u, e0 - o0);
    store(item, 3u, 5u, e1 - t1);
    store(item, 3u, 6u, e2 - t2);
    store(item, 3u, 7u, e3 - t3);
}

// Multiplies frames by a table. The factors are the table.
@compute @workgroup_size(64)
fn multiply(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
    let item = item_of(id, groups);
    if item.is_valid {
        let at = inner(item.frame, item.index);
        output[at] = times(input[at], factors[item.index]);
    }
}

// Multiplies the caller's frames by the chirp, and fills them up with zeros. The factors are the chirp.
@compute @workgroup_size(64)
fn spread(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
    let item = item_of(id, groups);
    if item.is_valid {
        var value = vec2f();
        if item.index < parameters.size {
            value = times(input[outer(item.frame, item.index)], factors[item.index]);
        }
        output[inner(item.frame, item.index)] = value;
    }
}

// Multiplies the convolution's first samples by the chirp, and puts them into the caller's frames.
@compute @workgroup_size(64)
fn gather(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
    let item = item_of(id, groups);
    if item.is_valid {
        let value = times(input[inner(item.frame, item.index)], factors[item.index]);
        output[outer(item.frame, item.index)] = parameters.scale * value;
    }
}
