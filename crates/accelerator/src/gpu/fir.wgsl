// Filter with real coefficients on complex samples, which keeps one output of some.
//
// The samples before the block lie in a buffer of their own: its last one is the sample before the block's first.

struct Parameters {
    outputs: u32,
    taps: u32,
    decimation: u32,
}

var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read> block: array<vec2f>;
@group(0) @binding(1) var<storage, read> history: array<vec2f>;
@group(0) @binding(2) var<storage, read> taps: array<f32>;
@group(0) @binding(3) var<storage, read_write> output: array<vec2f>;

@compute @workgroup_size(64)
fn filter_block(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
    let number = id.x + id.y * groups.x * 64u;
    if number >= parameters.outputs {
        return;
    }
    let newest = number * parameters.decimation;
    let inside = min(parameters.taps, newest + 1u);
    var sum = vec2f();
    for (var tap = 0u; tap < inside; tap++) {
        sum += taps[tap] * block[newest - tap];
    }
    for (var tap = inside; tap < parameters.taps; tap++) {
        sum += taps[tap] * history[parameters.taps - 1u + newest - tap];
    }
    output[number] = sum;
}
