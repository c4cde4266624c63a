//! Settings of the preloaded library: one row for each variable of the environment that it reads.
//!
//! The preloaded library parses the variables, `bywash run` sets them from its flags; help, man page and guide
//! list the rows.

/// A setting: a variable of the environment, and the flag of `bywash run` that sets it.
#[derive(Debug)]
pub struct Setting {
    /// Name of the variable.
    pub variable: &'static str,
    /// Flag without its dashes; empty if there is none.
    pub flag: &'static str,
    /// Form of the flag's value; empty if the flag takes none.
    pub value: &'static str,
    /// Value of the variable, in words.
    pub variable_value: &'static str,
    /// Text of the value that counts if the variable is not set; `None` if there is none.
    pub default: Option<&'static str>,
    /// One sentence on what the setting does, in plain text and without a full stop.
    pub sentence: &'static str,
}

/// Paths that are served.
pub const ONLY: Setting = Setting {
    variable: "BYWASH_ONLY",
    flag: "only",
    value: "PREFIX",
    variable_value: "absolute paths without symbolic links, separated by colons; 4,095 bytes at most",
    default: None,
    sentence: "serve only the file or folder PREFIX and what is below it; may be repeated",
};

/// Paths that are not served.
pub const EXCEPT: Setting = Setting {
    variable: "BYWASH_EXCEPT",
    flag: "except",
    value: "PREFIX",
    variable_value: "as BYWASH_ONLY",
    default: None,
    sentence: "leave the file or folder PREFIX and what is below it to the kernel, also below a prefix of --only; may be repeated",
};

/// Size of the largest request that is served from a mapping.
pub const THRESHOLD: Setting = Setting {
    variable: "BYWASH_THRESHOLD",
    flag: "threshold",
    value: "SIZE",
    variable_value: "a size",
    default: Some("64K"),
    sentence: "size of the largest request that is served from a mapping; `bywash doctor` recommends one",
};

/// Bound of the mapped bytes of a process.
pub const RESIDENT: Setting = Setting {
    variable: "BYWASH_RESIDENT",
    flag: "resident",
    value: "SIZE",
    variable_value: "a size",
    default: None,
    sentence: "keep at most SIZE of files mapped, and so resident, in each process; without it a quarter of \
               what the control group or else the machine allows",
};

/// Keeper of file positions.
pub const POSITIONS: Setting = Setting {
    variable: "BYWASH_POSITIONS",
    flag: "positions",
    value: "WHO",
    variable_value: "kernel or user",
    default: Some("kernel"),
    sentence: "who keeps the position that read, write and lseek move: the kernel, or the library where it can (user)",
};

/// Writes through mappings.
pub const WRITES: Setting = Setting {
    variable: "BYWASH_WRITES",
    flag: "writes",
    value: "",
    variable_value: "1; empty or 0: off",
    default: None,
    sentence: "also write files on tmpfs through their mappings; kill -9 during a write may leave it half done",
};

/// Commit log.
pub const LOG: Setting = Setting {
    variable: "BYWASH_LOG",
    flag: "log",
    value: "LOG",
    variable_value: "the path of the memory that the log's keeper shares",
    default: None,
    sentence: "make commits (fsync and the like) durable in the commit log LOG; nobody else may write the program's files \
               meanwhile",
};

/// Shared memory of a run's commits.
pub const LOG_COUNTS: Setting = Setting {
    variable: "BYWASH_LOG_COUNTS",
    flag: "",
    value: "",
    variable_value: "a path",
    default: None,
    sentence: "where the processes of a run count their commits; --stats and --report set it with --log",
};

/// A library that does nothing.
pub const OFF: Setting = Setting {
    variable: "BYWASH_OFF",
    flag: "off",
    value: "",
    variable_value: "1; empty or 0: not off",
    default: None,
    sentence: "load the library but leave everything to the kernel, for comparisons",
};

/// Time for warming in advance.
pub const ADVANCE: Setting = Setting {
    variable: "BYWASH_ADVANCE",
    flag: "",
    value: "",
    variable_value: "a number of reads",
    default: Some("32"),
    sentence: "number of reads whose time a thread may spend on mapping pages before it has gained anything",
};

/// Shared memory of the session.
pub const SESSION: Setting = Setting {
    variable: "BYWASH_SESSION",
    flag: "",
    value: "",
    variable_value: "a path",
    default: None,
    sentence: "memory in which the processes count what they do; --stats and --report set it",
};

/// All settings, in the order in which help and guide list them.
pub const SETTINGS: [&Setting; 11] =
    [&ONLY, &EXCEPT, &THRESHOLD, &RESIDENT, &POSITIONS, &WRITES, &LOG, &OFF, &ADVANCE, &SESSION, &LOG_COUNTS];
