//! Tests of bash and dash: redirections, here-documents, descriptors that share one file position.

use bywash_programs::{ScenarioRun, on_both_file_systems};

on_both_file_systems!(shared_positions, in_bash_only, busy_scripts);

/// Script for both shells.
const POSIX: &str = r#"
seq 1 2000 > numbers
{ read a; read b; echo "$a $b"; cat; } < numbers | tail -n 2
{ read a; (read b; echo "in a subshell $b"); read c; echo "$c"; head -n 1; } < numbers
{ echo one; (echo two); sh -c 'echo three'; echo four; } > joined; cat joined
{ echo out; echo err >&2; /bin/echo out; /bin/echo err >&2; } > both 2>&1; cat both
exec 3<>numbers; read x <&3; echo "read $x"; echo XX >&3; read y <&3; echo "then $y"; exec 3<&-
head -n 4 numbers
exec 4>>log 5>>log; for i in 1 2 3 4 5; do echo "a$i" >&4; echo "b$i" >&5; /bin/echo "c$i" >&4; done
exec 4>&- 5>&-; cat log
total=0; while read n; do case $n in *5) total=$((total + n));; esac; done < numbers; echo "total $total"
tail -n +10 numbers > tens
total=0; while read n; do total=$((total + n)); done < tens; echo "total $total"
cat <<END > here
a here-document of $(wc -l < numbers) lines
$(sed -n 5,7p numbers)
END
cat here
n=0; while [ $n -lt 40 ]; do printf '%03d,' $n; n=$((n + 1)); done > commas; cat commas; echo
: > emptied; echo x > emptied; : > emptied; wc -c < emptied
cat < numbers > numbers.copy; cmp numbers numbers.copy && echo same
exec 6< numbers; read a <&6; exec 7<&6; read b <&7; read c <&6; echo "$a $b $c"; exec 6<&- 7<&-
(exec 8> from8; echo "to eight" >&8; echo "again" >&8; cat from8 >&2; exec 8>&-; cat from8)
set -C; echo no > numbers || echo "kept"; set +C; echo clobbered >| numbers; cat numbers
trap 'echo "at the end" >> log; tail -n 1 log' EXIT
"#;

fn shared_positions(stage: &ScenarioRun) {
    for shell in ["dash", "bash"] {
        stage.make_folder(shell);
        stage.write(&format!("{shell}/script"), POSIX);
        stage.program(shell).at(shell).arg("script").run().note();
        // The shell reads the script itself from a descriptor whose position its children share.
        stage.program(shell).at(shell).input(POSIX).run().note();
        let eats_its_input = "echo first\nhead -n 1\nthis line is data\nread line\nso is this\necho $line\n";
        stage.program(shell).input(eats_its_input).run().note();
    }
    stage.note_tree();
}

const BASH: &str = r#"
seq 1 3000 > numbers
diff <(head -n 5 numbers) <(sed -n 3,7p numbers)
mapfile -t lines < numbers; echo "${#lines[@]} ${lines[1234]}"
while IFS= read -r -u 9 line; do read -r other <&10 || break; echo "$line-$other"; done 9< <(head -n 3 numbers) 10< numbers
exec {fd}<> numbers; read -r -N 7 seven <&$fd; printf '%q\n' "$seven"; printf 'ZZ' >&$fd; read -r z <&$fd; echo "$z"; exec {fd}>&-
cat <<< "a here-string of $(head -c 9 numbers | tr '\n' ' ')"
coproc cat; echo hello >&${COPROC[1]}; read -r said <&${COPROC[0]}; echo "$said"; kill $COPROC_PID; wait 2> /dev/null
rm -f sum1 sum2; tee >(sha256sum > sum1) >(wc -l > sum2) < numbers > numbers.copy; until [ -s sum1 ] && [ -s sum2 ]; do sleep 0.02; done; cat sum1 sum2
echo {a,b,c}{1..3} | tr ' ' '\n' | tac > reversed; cat reversed
{ head -n 1; dd bs=1 count=3 status=none; cat; } < reversed
for f in x y z; do echo $f; done | while read -r v; do echo "got $v" | tee -a pieces; done; cat pieces
printf '%s\n' "$(< reversed)" | sort | sha256sum
{ time true; } 2> /dev/null; echo $?
source <(echo 'echo sourced $BASH_SUBSHELL')
wait
"#;

fn in_bash_only(stage: &ScenarioRun) {
    stage.write("script", BASH);
    stage.program("bash").arg("script").run().note();
    stage.program("bash").input(BASH).run().note();
    stage.note_tree();
}

/// Several shells write one log at once; every line must arrive whole.
fn busy_scripts(stage: &ScenarioRun) {
    let writer = "for i in $(seq 1 60); do echo \"$1 line $i of a log that many write\" >> log; done";
    let script = format!("w() {{ {writer}; }}; for n in 1 2 3 4; do w $n & done; wait; sort log; wc log");
    stage.program("bash").args(["-c", &script]).run().note();
    let locked =
        "for i in $(seq 1 15); do ( flock 9; n=$(cat count); echo $((n + 1)) > count ) 9> lock; done";
    let script = format!("echo 0 > count; for n in 1 2 3; do ( {locked} ) & done; wait; cat count");
    stage.program("bash").args(["-c", &script]).run().note();
}
