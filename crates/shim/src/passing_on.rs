//! Functions with variable arguments: run a preparation, then continue in the C library's own function with
//! every register as it was.

/// `name => before;` exports `name`, which calls `before(first argument)` and then jumps to the next
/// library's function of that name.
#[macro_export]
macro_rules! passing_on {
    ($($(#[$doc:meta])* $name:ident => $before:path;)*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                extern "C" fn prepare(first: usize) -> usize {
                    static SYMBOL: $crate::real::Symbol = $crate::real::Symbol::new();
                    $before(first);
                    SYMBOL.address($crate::c_name!($name))
                }
                // All argument registers are saved over the call: six integers, eight vectors, and rax, which
                // holds the number of vectors in a call with variable arguments. Seven pushes and 128 bytes
                // leave the stack aligned for a call.
                core::arch::naked_asm!(
                    "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                    "sub rsp, 128",
                    "movups [rsp], xmm0", "movups [rsp + 16], xmm1",
                    "movups [rsp + 32], xmm2", "movups [rsp + 48], xmm3",
                    "movups [rsp + 64], xmm4", "movups [rsp + 80], xmm5",
                    "movups [rsp + 96], xmm6", "movups [rsp + 112], xmm7",
                    "call {prepare}",
                    "mov r11, rax",
                    "movups xmm0, [rsp]", "movups xmm1, [rsp + 16]",
                    "movups xmm2, [rsp + 32]", "movups xmm3, [rsp + 48]",
                    "movups xmm4, [rsp + 64]", "movups xmm5, [rsp + 80]",
                    "movups xmm6, [rsp + 96]", "movups xmm7, [rsp + 112]",
                    "add rsp, 128",
                    "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                    "jmp r11",
                    prepare = sym prepare,
                )
            }
        )*
    };
}
