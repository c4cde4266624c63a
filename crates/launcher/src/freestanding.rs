//! Runtime of a program without a C library: entry point, access to arguments and environment, memory
//! functions that compiled code calls, and exit.

use crate::{OWN_FAILURE, launch};
use bywash_syscall::call;
use core::arch::{global_asm, naked_asm};
use core::ffi::{CStr, c_char};

/// Entry point of the program (System V ABI for x86-64, 3.4.1): the stack holds the arguments, the
/// environment and the auxiliary vector, each terminated by a zero.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn _start() -> ! {
    naked_asm!("xor ebp, ebp", "mov rdi, rsp", "and rsp, -16", "call {begin}", "ud2", begin = sym begin)
}

unsafe extern "C" fn begin(stack: *const usize) -> ! {
    launch(&Inherited(stack))
}

/// Initial stack of a process: number of arguments, arguments, environment, auxiliary vector.
pub struct Inherited(*const usize);

/// An environment variable, `NAME=VALUE`.
#[derive(Clone, Copy)]
pub struct Variable(&'static CStr);

impl Variable {
    /// Returns the name; the whole text if it has no `=`.
    pub fn name(&self) -> &'static [u8] {
        let text = self.0.to_bytes();
        text.split(|byte| *byte == b'=').next().unwrap_or(text)
    }

    /// Returns the address of the text.
    pub fn pointer(&self) -> *const c_char {
        self.0.as_ptr()
    }
}

impl Inherited {
    fn count(&self) -> usize {
        // SAFETY: the kernel puts the number of arguments at the start of the initial stack.
        unsafe { *self.0 }
    }

    /// Returns the array of arguments, the program's own name first.
    pub fn arguments(&self) -> *const *const c_char {
        // SAFETY: the array of arguments follows their number on the initial stack.
        unsafe { self.0.add(1).cast() }
    }

    /// Returns the array of arguments from `index` on; `None` if there are not as many.
    pub fn arguments_from(&self, index: usize) -> Option<*const *const c_char> {
        // SAFETY: `index` is less than the number of arguments, so the address is inside the array.
        (index < self.count()).then(|| unsafe { self.arguments().add(index) })
    }

    /// Returns the words after the program's own name.
    pub fn words(&self) -> impl Iterator<Item = &'static [u8]> {
        let list = (1..self.count()).filter_map(|index| self.arguments_from(index));
        // SAFETY: each argument is a C string that lives as long as the process.
        list.map(|at| unsafe { CStr::from_ptr(*at) }.to_bytes())
    }

    /// Returns the array of environment strings.
    pub fn environment(&self) -> *const *const c_char {
        // SAFETY: the environment follows the arguments and their terminating null on the initial stack.
        unsafe { self.arguments().add(self.count() + 1) }
    }

    /// Returns the environment variables.
    pub fn variables(&self) -> impl Iterator<Item = Variable> {
        let list = self.environment();
        // SAFETY: the array ends with a null, at which `map_while` stops, and each string lives as long as
        // the process.
        (0..).map_while(move |index| unsafe {
            let text = *list.add(index);
            (!text.is_null()).then(|| Variable(CStr::from_ptr(text)))
        })
    }

    /// Returns the value of the first variable of this name.
    pub fn variable(&self, name: &[u8]) -> Option<&'static [u8]> {
        self.variables().find_map(|variable| variable.0.to_bytes().strip_prefix(name)?.strip_prefix(b"="))
    }

    /// Returns the path by which this program was executed, from AT_EXECFN of the auxiliary vector
    /// (getauxval(3)).
    pub fn executed_path(&self) -> Option<&'static [u8]> {
        const AT_NULL: usize = 0;
        const AT_EXECFN: usize = 31;
        // SAFETY: the auxiliary vector follows the environment and its null: pairs of words, the last pair of
        // type AT_NULL.
        unsafe {
            let mut pair = self.environment().add(self.variables().count() + 1).cast::<usize>();
            while *pair != AT_NULL {
                if *pair == AT_EXECFN {
                    return Some(CStr::from_ptr(*pair.add(1) as *const c_char).to_bytes());
                }
                pair = pair.add(2);
            }
        }
        None
    }
}

/// Prints a message to standard error by one write. `parts` may have at most seven elements.
pub fn say(parts: &[&[u8]]) {
    const WRITEV: usize = 20;
    let mut list = [(core::ptr::null::<u8>(), 0); 8];
    let all = [&b"bywash: "[..]].into_iter().chain(parts.iter().copied());
    for (place, part) in list.iter_mut().zip(all) {
        *place = (part.as_ptr(), part.len());
    }
    // SAFETY: `list` holds valid pointers with their lengths, in the layout of struct iovec.
    unsafe { call(WRITEV, [2, list.as_ptr() as usize, parts.len() + 1, 0, 0, 0]) };
}

/// Ends the process with `status`.
pub fn exit(status: i32) -> ! {
    const EXIT_GROUP: usize = 231;
    loop {
        // SAFETY: the call takes an integer only, and does not return.
        unsafe { call(EXIT_GROUP, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

#[panic_handler]
fn broken(_: &core::panic::PanicInfo) -> ! {
    say(&[b"the launcher is broken; please report how it was called, and call bywash-command instead\n"]);
    exit(OWN_FAILURE)
}

// Memory functions that compiled code calls, with C's semantics. The direction flag is clear at every call.
global_asm!(
    ".globl memcpy, memmove, memset, memcmp, bcmp, strlen",
    "memmove:",
    "mov rax, rdi",
    "sub rax, rsi",
    "cmp rax, rdx",
    "jae memcpy",
    // The target begins within the source, so the copy runs from the end.
    "mov rax, rdi",
    "lea rsi, [rsi + rdx - 1]",
    "lea rdi, [rdi + rdx - 1]",
    "mov rcx, rdx",
    "std",
    "rep movsb",
    "cld",
    "ret",
    "memcpy:",
    "mov rax, rdi",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    "memset:",
    "mov r8, rdi",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r8",
    "ret",
    "bcmp:",
    "memcmp:",
    "xor eax, eax",
    "mov rcx, rdx",
    // Sets the flags to "equal", which holds for zero bytes.
    "cmp rcx, rcx",
    "repe cmpsb",
    "je 2f",
    "movzx eax, byte ptr [rdi - 1]",
    "movzx ecx, byte ptr [rsi - 1]",
    "sub eax, ecx",
    "2:",
    "ret",
    "strlen:",
    "mov rax, rdi",
    "3:",
    "cmp byte ptr [rax], 0",
    "je 4f",
    "inc rax",
    "jmp 3b",
    "4:",
    "sub rax, rdi",
    "ret",
);

/// Compiled parts of `core` refer to these functions for unwinding, which never happens in a program that
/// aborts.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    exit(OWN_FAILURE)
}
