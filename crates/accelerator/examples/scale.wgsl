// Kernel that multiplies all numbers (float, little-endian) by 2.5.

const INPUT_BYTES: u32 = 4;
const OUTPUT_BYTES: u32 = 4;

struct Block {
    // Number of units of this block.
    units: u32,
    // Number of units before it: the lower and the upper 32 bits.
    before: vec2<u32>,
}

@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;
@group(0) @binding(2) var<uniform> block: Block;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if id.x < block.units {
        output[id.x] = 2.5 * input[id.x];
    }
}
