# What the banks of all servers have in common. To be sourced.
#
#   BANK prepare|run|check DATA MEMORY PROGRAM INDEX SEED TRANSACTIONS [PREFIX...]
#
# `prepare` makes the database in the folder DATA, `run` lets two clients do TRANSACTIONS each, `check` recovers it, checks it
# and prints `sound`, then for each client its number and that of its commits. PREFIX goes before the program under test.
set -euo pipefail

mode=$1 data=$2 memory=$3 program=$4 index=$5 seed=$6 transactions=$7
shift 7
accounts=100

# Writes down, as acknowledged, the numbers that come in as lines.
acknowledge() {
  "$program" acknowledge "$index" "$memory/acknowledged"
}

# The transactions of client $1 in SQL. After each commit, the number of the client times 2^32 plus that of its commits.
transfers() {
  awk -v client="$1" -v seed="$seed" -v transactions="$transactions" -v accounts="$accounts" 'BEGIN {
    srand(seed * 2 + client)
    for (i = 0; i < transactions; i++) {
      # Locked in order, so that no client waits in a circle.
      low = int(rand() * (accounts - 1)); high = low + 1 + int(rand() * (accounts - 1 - low)); amount = int(rand() * 100) - 50
      print "BEGIN;"
      printf "UPDATE counter SET number=number+1 WHERE client=%d;\n", client
      printf "UPDATE account SET balance=balance-(%d) WHERE id=%d;\n", amount, low
      printf "UPDATE account SET balance=balance+(%d) WHERE id=%d;\n", amount, high
      printf "INSERT INTO history SELECT %d, number, repeat(chr(97), %d) FROM counter WHERE client=%d;\n", client, rand() * 3000, client
      print "COMMIT;"
      printf "SELECT %d*4294967296+number FROM counter WHERE client=%d;\n", client, client
    }
  }'
}

tables() {
  echo "CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER);
    CREATE TABLE counter(client INTEGER PRIMARY KEY, number BIGINT);
    CREATE TABLE history(client INTEGER, number BIGINT, note TEXT, PRIMARY KEY(client, number));
    INSERT INTO counter VALUES(0, 0), (1, 0);"
  for ((id = 0; id < accounts; id++)); do
    echo "INSERT INTO account VALUES($id, 0);"
  done
}

# Lines of zeroes if nothing is half there.
sums="SELECT sum(balance) FROM account;
  SELECT count(*) FROM history h LEFT JOIN counter c ON h.client=c.client AND h.number<=c.number WHERE c.client IS NULL;
  SELECT sum(number)-(SELECT count(*) FROM history) FROM counter;"

# Waits until a server answers the command.
await() {
  local tries
  for ((tries = 0; tries < 1000; tries++)); do
    if "$@" > /dev/null 2>&1; then
      return
    fi
    kill -0 "$server" 2> /dev/null || return 1
    sleep 0.03
  done
  echo "the server does not answer" >&2
  return 1
}

# Checks that the output of the sums, $1, is three zeroes.
sound() {
  if [[ $1 != $'0\n0\n0' ]]; then
    echo "half there: $1" >&2
    return 1
  fi
  echo sound
}
