//! Test of git: the same work gives the same object names.

use bywash_programs::{Program, ScenarioRun, on_both_file_systems};

on_both_file_systems!(a_repository_s_life);

fn git<'a>(stage: &'a ScenarioRun, folder: &str, args: &[&str]) -> Program<'a> {
    let mut git =
        stage.program("git").at(folder).args(SETTINGS.iter().flat_map(|set| ["-c", set])).args(args);
    for who in ["AUTHOR", "COMMITTER"] {
        git = git.env(&format!("GIT_{who}_DATE"), "2001-02-03T04:05:06Z");
        git = git.env(&format!("GIT_{who}_NAME"), "A").env(&format!("GIT_{who}_EMAIL"), "a@example.org");
    }
    git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_PROGRESS_DELAY", "99999").limit(50)
}

/// Settings that make packs reproducible: one thread for each operation, and no work in the background.
const SETTINGS: [&str; 7] = [
    "init.defaultBranch=main",
    "gc.autoDetach=false",
    "gc.auto=40",
    "pack.threads=1",
    "index.threads=1",
    "core.fsync=all",
    "protocol.file.allow=always",
];

fn a_repository_s_life(stage: &ScenarioRun) {
    stage.make_folder("one");
    let run = |args: &[&str]| git(stage, "one", args).run().note().ok();
    run(&["init", "-q"]);
    for commit in 0..24 {
        for _ in 0..4 {
            let name = format!("one/f{}", stage.seed().below(30));
            let text = stage.seed().text(120, 60);
            stage.write(&name, text);
        }
        let blob = stage.seed().bytes(20_000);
        stage.write("one/blob", blob);
        run(&["add", "-A"]);
        run(&["commit", "-q", "-m", &format!("commit {commit}")]);
    }
    run(&["tag", "-a", "-m", "a tag", "v1", "HEAD~5"]);
    run(&["checkout", "-q", "-b", "side", "HEAD~10"]);
    stage.write("one/only-here", "side\n");
    run(&["add", "-A"]);
    run(&["commit", "-q", "-m", "side"]);
    run(&["merge", "-q", "-s", "ours", "-m", "merged", "main"]);
    run(&["repack", "-q", "-a", "-d", "-f", "--depth=10", "--window=10"]);
    run(&["gc", "-q", "--prune=now"]);
    run(&["fsck", "--full", "--strict"]);
    for branch in ["main", "v1", "side"] {
        run(&["checkout", "-q", branch]);
        run(&["status", "--porcelain"]);
    }
    run(&["stash", "list"]);
    run(&["log", "--all", "--format=%H %T %s"]);
    let local = stage.path("one").to_string_lossy().into_owned();
    git(stage, ".", &["clone", "-q", "--local", &local, "two"]).run().note().ok();
    git(stage, ".", &["clone", "-q", &format!("file://{local}"), "three"]).run().note().ok();
    stage.write("two/f1", "from two\n");
    git(stage, "two", &["add", "f1"]).run().note().ok();
    git(stage, "two", &["commit", "-q", "-m", "two's own"]).run().note().ok();
    git(stage, "two", &["push", "-q", "origin", "HEAD:refs/heads/pushed"]).run().note().ok();
    run(&["fsck", "--full"]);
    git(stage, "three", &["fetch", "-q"]).run().note().ok();
    git(stage, "three", &["fsck", "--full"]).run().note().ok();
    let objects = ["cat-file", "--batch-all-objects", "--batch-check"];
    for folder in ["one", "two", "three"] {
        git(stage, folder, &objects).run().note().ok();
        git(stage, folder, &["show-ref"]).run().note().ok();
        git(stage, folder, &["grep", "-c", "tao"]).run().note();
    }
    stage.program("rm").plain().args(["-r", "one/.git", "two/.git", "three/.git"]).run().ok();
    stage.note_tree();
}
