//! Tests of everyday tools: tar, cp, sort, gzip, sha256sum, grep, sed, dd, rsync, patch.

use bywash_programs::{ScenarioRun, on_both_file_systems};

on_both_file_systems!(
    archives_and_copies,
    sort_with_temporary_files,
    compressed_and_summed,
    searched_and_edited_in_place,
    odd_block_sizes,
    mirrored,
    patched,
);

/// Makes a tree with small and large files, a hole, links and unusual permissions.
fn make_tree(stage: &ScenarioRun) {
    stage.make_folder("tree/empty");
    stage.make_folder("tree/deep/er");
    for file in 0..40 {
        let length = stage.seed().below(30_000) as usize;
        let content = stage.seed().bytes(length);
        stage.write(&format!("tree/deep/f{file}"), content);
    }
    let large = stage.seed().bytes(3_000_001);
    stage.write("tree/large", large);
    let script = "ln tree/large tree/deep/er/again; ln -s ../large tree/deep/link; chmod 400 tree/deep/f1
        truncate -s 1M tree/sparse; printf end | dd of=tree/sparse bs=1 seek=700000 conv=notrunc status=none
        find tree -exec touch -h -d @1000000000 {} +";
    stage.program("sh").plain().args(["-e", "-c", script]).run().ok();
}

fn archives_and_copies(stage: &ScenarioRun) {
    make_tree(stage);
    let tar = |args: &[&str]| stage.program("tar").args(args).run().note().ok();
    tar(&["--sort=name", "-cf", "all.tar", "tree"]);
    tar(&["--sort=name", "--sparse", "--format=gnu", "-cf", "sparse.tar", "tree/sparse"]);
    tar(&["-rf", "all.tar", "--transform=s/^/more-/", "tree/deep/f2"]);
    tar(&["--delete", "-f", "all.tar", "tree/deep/f3"]);
    tar(&["-tvf", "all.tar"]);
    tar(&["-df", "all.tar", "--exclude=more-*"]);
    stage.make_folder("out");
    tar(&["-xpf", "all.tar", "-C", "out"]);
    stage.program("cp").args(["-a", "tree", "copy"]).run().note().ok();
    stage.program("cp").args(["--reflink=never", "--sparse=always", "tree/sparse", "holes"]).run().note();
    stage.program("cat").args(["tree/large", "tree/sparse", "tree/deep/f1"]).run().note();
    stage.program("cmp").args(["tree/large", "copy/large"]).run().note();
    stage.note_tree();
    let blocks = "stat -c '%n %b' holes copy/sparse; stat -c '%n %Y' copy/large out/tree/large";
    stage.program("sh").plain().args(["-c", blocks]).run().note();
}

fn sort_with_temporary_files(stage: &ScenarioRun) {
    let text = stage.seed().text(20_000, 60);
    stage.write("in", text);
    stage.make_folder("temporary");
    let sort = |args: &[&str]| stage.program("sort").args(["-T", "temporary", "-S", "100K"]).args(args).run();
    sort(&["in", "-o", "sorted"]).note();
    sort(&["--parallel=2", "-r", "in", "-o", "reversed"]).note();
    sort(&["-u", "-k2", "in", "-o", "unique"]).note();
    sort(&["-c", "sorted"]).note();
    stage.program("cp").args(["in", "in-place"]).run().ok();
    sort(&["in-place", "-o", "in-place"]).note();
    sort(&["-m", "sorted", "in-place", "-o", "merged"]).note();
    stage.program("sh").args(["-c", "sort -T temporary -S 50K < in | uniq -c | tail -n 40"]).run().note();
    stage.note_tree();
}

fn compressed_and_summed(stage: &ScenarioRun) {
    let data = stage.seed().bytes(2_000_003);
    stage.write("data", data);
    let script = "gzip -k -n data; gzip -t data.gz; gzip -dc data.gz | cmp - data
        cp data.gz other.gz; gunzip other.gz; cmp other data
        sha256sum data data.gz other > sums; sha256sum -c sums; md5sum data; cksum data
        split -b 7777 -a 4 data part.; cat part.* | sha256sum; rm part.*
        head -c 12345 data | tail -c 99 | sha256sum; tail -c 4567 data | sha256sum; wc data";
    stage.program("bash").args(["-e", "-o", "pipefail", "-c", script]).run().note().ok();
    stage.program("gzip").args(["-kn1", "--suffix=.one", "data"]).run().note();
    stage.program("sha256sum").args(["data", "data.one"]).run().note();
    stage.note_tree();
}

fn searched_and_edited_in_place(stage: &ScenarioRun) {
    stage.make_folder("texts");
    for file in 0..30 {
        let text = stage.seed().text(300, 70);
        stage.write(&format!("texts/{file}"), text);
    }
    let run = |program: &str, args: &[&str]| stage.program(program).args(args).run().note();
    run("grep", &["-c", "tao", "-r", "texts", "--include=1*"]);
    run("grep", &["-n", "-o", "-b", "shr.l", "texts/3"]);
    run("grep", &["--mmap-is-no-flag", "x", "texts/3"]);
    for round in 0..5 {
        run("sed", &["-i", &format!("s/t/<{round}>/2; {}d", 10 + round), "texts/1", "texts/2", "texts/3"]);
    }
    run("sed", &["-i.bak", "-n", "/e/p", "texts/4"]);
    run("sed", &["-n", "/e/w found", "texts/5"]);
    run("grep", &["-L", "<4>", "-r", "texts"]);
    stage.note_tree();
}

fn odd_block_sizes(stage: &ScenarioRun) {
    let data = stage.seed().bytes(300_007);
    stage.write("in", data);
    stage.write("over", vec![b'.'; 400_000]);
    let dd = |args: &[&str]| stage.program("dd").arg("status=none").args(args).run().note();
    for size in ["1", "7", "511", "512", "513", "4095", "4097", "65537"] {
        let count = format!("count={}", 20_000 / size.parse::<u32>().expect("a number") + 3);
        let (size, out) = (format!("bs={size}"), format!("of=out{size}"));
        dd(&["if=in", &out, &size, &count]);
        dd(&["if=in", "of=over", &size, &count, "conv=notrunc", "seek=2", "skip=1"]);
        dd(&["if=over", "of=over", &size, &count, "conv=notrunc", "oflag=append"]);
    }
    dd(&["if=in", "of=sync", "bs=700", "oflag=dsync", "count=20"]);
    dd(&["if=in", "of=sync", "bs=1000", "oflag=sync", "count=5", "conv=notrunc,fsync", "seek=3"]);
    dd(&["if=in", "of=swapped", "ibs=333", "obs=777", "conv=swab"]);
    dd(&["if=in", "of=padded", "bs=4096", "conv=sync"]);
    dd(&["if=in", "of=sparse", "bs=512", "seek=100000", "count=1", "conv=sparse"]);
    dd(&["if=in", "of=nothing", "bs=512", "skip=9999999"]);
    dd(&["if=in", "bs=100000", "count=1", "of=in", "conv=notrunc", "seek=2"]);
    stage.note_tree();
}

fn mirrored(stage: &ScenarioRun) {
    make_tree(stage);
    let rsync = |args: &[&str]| stage.program("rsync").args(args).run().note().ok();
    rsync(&["-aH", "tree/", "mirror"]);
    let changes = "printf changed | dd of=tree/large bs=1 seek=1500000 conv=notrunc status=none
        rm tree/deep/f5; truncate -s 100 tree/deep/f6; echo more >> tree/deep/f7";
    stage.program("sh").args(["-e", "-c", changes]).run().note().ok();
    rsync(&["-aH", "--delete", "--no-whole-file", "--inplace", "--checksum", "tree/", "mirror"]);
    rsync(&["-a", "--no-whole-file", "-n", "-i", "--checksum", "tree/", "mirror"]);
    stage.note_tree();
}

fn patched(stage: &ScenarioRun) {
    let old = stage.seed().text(2_000, 60);
    let new: String = old.lines().enumerate().fold(String::new(), |text, (at, line)| {
        text + if at % 97 == 3 { "changed" } else { line } + if at % 131 == 5 { "\nadded\n" } else { "\n" }
    });
    stage.write("file", &old);
    stage.write("new", new);
    let difference = stage.program("diff").args(["-u", "--label=a/file", "--label=b/file", "file", "new"]);
    let difference = difference.run().note().stdout;
    stage.write("it.patch", difference);
    let patch =
        |args: &[&str]| stage.program("patch").args(["-p1", "-i", "it.patch"]).args(args).run().note();
    patch(&["--dry-run"]).ok();
    patch(&["-b"]).ok();
    stage.program("cmp").args(["file", "new"]).run().note().ok();
    patch(&["-R"]).ok();
    patch(&["-R", "-f"]);
    stage.note_tree();
}
