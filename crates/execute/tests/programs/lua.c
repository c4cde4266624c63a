// Lua interpreter: the library of the Lua distribution, and just enough to run a script.
#include <stdio.h>
#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"

int main(int argc, char **argv) {
    lua_State *state = luaL_newstate();
    luaL_openlibs(state);
    lua_createtable(state, argc, 0);
    for (int index = 0; index < argc; index++) {
        lua_pushstring(state, argv[index]);
        lua_rawseti(state, -2, index);
    }
    lua_setglobal(state, "arg");
    if (argc < 2 || luaL_dofile(state, argv[1])) {
        fprintf(stderr, "lua: %s\n", argc < 2 ? "no script" : lua_tostring(state, -1));
        return 1;
    }
    lua_close(state);
    return 0;
}
