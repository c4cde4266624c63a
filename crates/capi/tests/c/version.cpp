// The header is C++ as well.
#include <bywash.h>

int main()
{
	bywash_path path = {0};
	bywash_path_close(&path);
	return bywash_version() == BYWASH_VERSION ? 0 : 1;
}
