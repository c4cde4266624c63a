//! Tests of make: it builds what changed and nothing else, and runs programs that were just written.
//!
//! Failures that this looks for: a file's modification time stays the same although a mapping has changed its
//! contents; a program cannot be started because a writable mapping of it exists (ETXTBSY).

use bywash_programs::{ScenarioRun, on_both_file_systems};
use std::fmt::Write;

on_both_file_systems!(rebuilds_what_changed, runs_what_was_just_written);

const PARTS: usize = 8;

const MAKEFILE: &str = "
OBJECTS = $(patsubst %.c,%.o,$(sort $(wildcard part*.c))) main.o
program: $(OBJECTS)
	$(CC) -o $@ $^ && ./$@ > output
	@echo built $@
%.o: %.c common.h
	@$(CC) -O0 -c -o $@ $< && echo compiled $<
library.a: $(OBJECTS)
	@ar rcsD $@ $^ && ranlib -D $@ && echo archived
";

fn write_sources(stage: &ScenarioRun) {
    stage.write("Makefile", MAKEFILE);
    stage.write("common.h", "#define COMMON 0001\n");
    let mut main = "#include <stdio.h>\n#include \"common.h\"\n".to_owned();
    let mut body = String::new();
    for part in 0..PARTS {
        let text = format!("#include \"common.h\"\nint part{part}(void) {{ return {part}0007 + COMMON; }}\n");
        stage.write(&format!("part{part}.c"), text);
        writeln!(main, "int part{part}(void);").expect("a string");
        writeln!(body, "printf(\"%d\\n\", part{part}());").expect("a string");
    }
    stage.write("main.c", format!("{main}int main(void) {{\n{body}return 0; }}\n"));
}

/// Runs make, and adds its lines to the transcript in sorted order, since two jobs run at the same time.
fn make(stage: &ScenarioRun, target: &str) -> String {
    let output = stage.program("make").args(["-j2", target]).run().ok();
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort_unstable();
    stage.note(lines.join("\n"));
    output
}

/// Returns the number of parts that were compiled.
fn compiled(output: &str) -> usize {
    output.lines().filter(|line| line.starts_with("compiled")).count()
}

fn rebuilds_what_changed(stage: &ScenarioRun) {
    write_sources(stage);
    assert_eq!(compiled(&make(stage, "program")), PARTS + 1);
    assert_eq!(compiled(&make(stage, "program")), 0, "nothing had changed");
    // Each edit changes one file in place, in a way that a mapping could serve.
    let edits = [
        ("sed -i s/0007/0008/ part3.c", 1),
        ("printf 9 | dd of=part4.c bs=1 seek=49 conv=notrunc status=none", 1),
        ("for i in 1 2 3 4 5 6 7 8; do printf 1234 | dd of=part5.c bs=1 seek=46 conv=notrunc; done 2>&1", 1),
        (
            "exec 5<>part6.c; read a <&5; for i in 1 2 3; do printf ' ' >&5; done
             printf 'int part6(void) { return 6; }\n//' >&5",
            1,
        ),
        ("printf 0005 | dd of=common.h bs=1 seek=15 conv=notrunc status=none", PARTS + 1),
        ("cat part7.c > copy; cp copy part7.c", 1),
        ("touch part0.c", 1),
        ("cat part1.c > /dev/null; dd if=part2.c bs=1 status=none > /dev/null", 0),
    ];
    for (edit, expected) in edits {
        stage.program("bash").args(["-e", "-c", edit]).run().ok();
        assert_eq!(compiled(&make(stage, "program")), expected, "make after: {edit}");
        stage.note(String::from_utf8_lossy(&stage.read("output")));
    }
    make(stage, "library.a");
    stage.note_tree();
}

fn runs_what_was_just_written(stage: &ScenarioRun) {
    let copies = "for i in $(seq 1 25); do
            cp /usr/bin/true copied$i; ./copied$i
            dd if=/usr/bin/echo of=written$i bs=700 status=none; chmod +x written$i; ./written$i $i
            cat /usr/bin/true > again; chmod +x again; ./again; printf x | dd of=again bs=1 seek=60000 conv=notrunc status=none; ./again
        done";
    stage.program("bash").args(["-e", "-c", copies]).run().note().ok();
    // One process writes the same places several times, and then starts the program.
    let patches = "import os, subprocess
for i in range(25):
    with open('/usr/bin/echo', 'rb') as source: content = source.read()
    descriptor = os.open(f'patched{i}', os.O_RDWR | os.O_CREAT, 0o755)
    for at in range(0, len(content), 512): os.pwrite(descriptor, content[at:at+512], at)
    for _ in range(3):
        for at in range(0, len(content), 512):
            assert os.pread(descriptor, 512, at) == content[at:at+512]
            os.pwrite(descriptor, content[at:at+512], at)
    os.close(descriptor)
    subprocess.run([f'./patched{i}', str(i)], check=True)
";
    stage.program("/usr/bin/python3").args(["-c", patches]).run().note().ok();
    stage.expect_served("/usr/bin/python3");
}
