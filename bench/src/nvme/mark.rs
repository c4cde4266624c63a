//! Instructions that do nothing, and that the counting plugin knows: `programs/count.c` says what each of them means.

/// Displacement of the first mark, as in the plugin's source.
#[cfg(target_arch = "x86_64")]
const MARK: i32 = 0x6279_7700;

/// Makes the functions of the marks, in the order of the plugin's source.
macro_rules! marks {
    ($($number:literal $name:ident: $sentence:literal;)*) => {$(
        #[doc = $sentence]
        #[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "a mark is an instruction of its own"))]
        #[inline(always)]
        pub fn $name() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a NOP with an operand accesses no memory and changes no register. The compiler takes it to access any
            // memory, so that it moves no access across.
            unsafe {
                std::arch::asm!(
                    "nop dword ptr [rax + {mark}]",
                    mark = const MARK + $number,
                    options(nostack, preserves_flags)
                );
            }
        }
    )*};
}

marks! {
    0 start: "Begins a section whose instructions are counted.";
    1 stop: "Ends a section.";
    2 keep: "Keeps the sample, as one of the first kind.";
    3 keep_second: "Keeps the sample, as one of the second kind.";
    4 give_up: "Gives the sample up.";
    5 next: "Begins the next series.";
    6 open: "Begins a window in which instructions are cut at each PAUSE instruction.";
    7 close: "Ends a window.";
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_plugin_has_the_same_marks() {
        let source = include_str!("../../programs/count.c");
        assert!(source.contains("enum mark { START, STOP, KEEP, KEEP_2, DROP, NEXT, OPEN, CLOSE, MARKS };"));
        #[cfg(target_arch = "x86_64")]
        assert!(source.contains(&format!("MARK = {:#x};", super::MARK)));
        // They do nothing.
        super::start();
        super::give_up();
    }
}
