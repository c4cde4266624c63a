set -e
: > config.cache
round=0
while [ $round -lt $1 ]; do
  mkdir -p conftest.dir
  echo "round $round" > conftest.in
  sed -e 's/round/turn/' -e "s/$round/@N@/" < conftest.in > conftest.out
  if grep '^turn @N@$' conftest.out > /dev/null; then result=yes; else result=no; fi
  echo "sed_works_$round=$result" >> config.cache
  number=`expr $round + 1`
  name=`echo "have header_$number.h" | tr 'a-z./ ' 'A-Z___'`
  echo "#define $name $number" > confdefs.h
  cat confdefs.h conftest.out > conftest.c.txt
  cp conftest.c.txt conftest.dir/copy
  if cmp -s conftest.c.txt conftest.dir/copy; then result=yes; else result=no; fi
  echo "copy_$round=$result `wc -c < conftest.dir/copy | tr -d ' '`" >> config.cache
  base=`basename conftest.dir/copy`
  case `uname -s`-$base in Linux-copy) echo "system_$round=known" >> config.cache ;; esac
  if [ -n "$CC" ] && [ `expr $round % 5` = 0 ]; then
    echo "int main(void) { return sizeof(long) == 8 ? 0 : $number; }" > conftest.c
    if $CC -o conftest conftest.c 2> conftest.err && ./conftest; then result=yes; else result=no; fi
    echo "compiler_$round=$result" >> config.cache
  fi
  rm -rf conftest* confdefs.h
  round=$number
done
sort config.cache > config.status
cat config.status
