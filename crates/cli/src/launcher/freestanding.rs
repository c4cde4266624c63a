//! Runtime of a program without a C library: its entry point, access to arguments and environment, the functions that
//! compiled code calls for memory, and its end.

use crate::{OWN_FAILURE, launch};
use bywash_syscall::call;
use core::arch::{global_asm, naked_asm};
use core::ffi::{CStr, c_char};

/// The kernel's entry into the program (System V ABI for x86-64, 3.4.1): the stack holds the arguments, the environment
/// and the auxiliary vector, each with a zero at its end.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn _start() -> ! {
    naked_asm!("xor ebp, ebp", "mov rdi, rsp", "and rsp, -16", "call {begin}", "ud2", begin = sym begin)
}

unsafe extern "C" fn begin(stack: *const usize) -> ! {
    launch(&Inherited(stack))
}

/// Initial stack of a process: the number of arguments, the arguments, the environment and the auxiliary vector.
pub struct Inherited(*const usize);

/// A variable of the environment, `NAME=VALUE`.
#[derive(Clone, Copy)]
pub struct Variable(&'static CStr);

impl Variable {
    /// Its name; all of it where there is no value.
    pub fn name(&self) -> &'static [u8] {
        let text = self.0.to_bytes();
        text.split(|byte| *byte == b'=').next().unwrap_or(text)
    }

    /// Returns the address of its text.
    pub fn pointer(&self) -> *const c_char {
        self.0.as_ptr()
    }
}

impl Inherited {
    fn count(&self) -> usize {
        // SAFETY: the kernel put the number of arguments first.
        unsafe { *self.0 }
    }

    /// The arguments, the program's own name first.
    pub fn arguments(&self) -> *const *const c_char {
        // SAFETY: they follow their number.
        unsafe { self.0.add(1).cast() }
    }

    /// The arguments from the one with this index on, if there is one.
    pub fn arguments_from(&self, index: usize) -> Option<*const *const c_char> {
        // SAFETY: fewer than there are.
        (index < self.count()).then(|| unsafe { self.arguments().add(index) })
    }

    /// The words behind the program's own name.
    pub fn words(&self) -> impl Iterator<Item = &'static [u8]> {
        let list = (1..self.count()).filter_map(|index| self.arguments_from(index));
        // SAFETY: each is a C string that lives as long as the process.
        list.map(|at| unsafe { CStr::from_ptr(*at) }.to_bytes())
    }

    /// The environment.
    pub fn environment(&self) -> *const *const c_char {
        // SAFETY: it follows the arguments and the zero at their end.
        unsafe { self.arguments().add(self.count() + 1) }
    }

    /// The environment's strings.
    pub fn variables(&self) -> impl Iterator<Item = Variable> {
        let list = self.environment();
        // SAFETY: a null is at the end, and no string behind it is looked at.
        (0..).map_while(move |index| unsafe {
            let text = *list.add(index);
            (!text.is_null()).then(|| Variable(CStr::from_ptr(text)))
        })
    }

    /// Value of the first variable of that name.
    pub fn variable(&self, name: &[u8]) -> Option<&'static [u8]> {
        self.variables().find_map(|variable| variable.0.to_bytes().strip_prefix(name)?.strip_prefix(b"="))
    }

    /// The path by which this program was executed, as the kernel notes it (AT_EXECFN in getauxval(3)).
    pub fn executed_path(&self) -> Option<&'static [u8]> {
        const AT_NULL: usize = 0;
        const AT_EXECFN: usize = 31;
        // SAFETY: the auxiliary vector follows the environment and its null: pairs of words, the last one AT_NULL.
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

/// Tells people something on standard error, in one write.
pub fn say(parts: &[&[u8]]) {
    const WRITEV: usize = 20;
    let mut list = [(core::ptr::null::<u8>(), 0); 8];
    let all = [&b"bywash: "[..]].into_iter().chain(parts.iter().copied());
    for (place, part) in list.iter_mut().zip(all) {
        *place = (part.as_ptr(), part.len());
    }
    // SAFETY: a list of pointers with their lengths, as struct iovec has them.
    unsafe { call(WRITEV, [2, list.as_ptr() as usize, parts.len() + 1, 0, 0, 0]) };
}

/// Ends the process.
pub fn exit(status: i32) -> ! {
    const EXIT_GROUP: usize = 231;
    loop {
        // SAFETY: an integer only; it does not come back.
        unsafe { call(EXIT_GROUP, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

#[panic_handler]
fn broken(_: &core::panic::PanicInfo) -> ! {
    say(&[b"the launcher is broken; please report how it was called, and call bywash-command instead\n"]);
    exit(OWN_FAILURE)
}

// What compiled code calls for memory, with the meaning that C gives it. The direction flag is clear at every call.
global_asm!(
    ".globl memcpy, memmove, memset, memcmp, bcmp, strlen",
    "memmove:",
    "mov rax, rdi",
    "sub rax, rsi",
    "cmp rax, rdx",
    "jae memcpy",
    // The target begins within the source: from the end on.
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
    // Of no bytes the flags say that they are the same.
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

/// The compiled parts of `core` name these for unwinding, which a program that aborts never does.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    exit(OWN_FAILURE)
}
