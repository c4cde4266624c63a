/* Memory: sorts random records in many pages by quicksort, and searches them in a tree of pointers. */
#include <stdio.h>
#include <stdlib.h>

struct node {
    unsigned long key;
    struct node *left, *right;
};

static unsigned long state = 88172645463325252UL;

static unsigned long next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static int by_value(const void *a, const void *b) {
    unsigned long x = *(const unsigned long *)a, y = *(const unsigned long *)b;
    return x < y ? -1 : x > y;
}

static void quicksort(unsigned long *first, unsigned long *last) {
    while (first < last) {
        unsigned long pivot = first[(last - first) / 2];
        unsigned long *low = first, *high = last;
        while (low <= high) {
            while (*low < pivot)
                low++;
            while (*high > pivot)
                high--;
            if (low <= high) {
                unsigned long value = *low;
                *low++ = *high;
                *high-- = value;
            }
        }
        quicksort(first, high);
        first = low;
    }
}

int main(int argc, char **argv) {
    unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 50000;
    unsigned long *values = malloc(count * sizeof *values);
    unsigned long *copy = malloc(count * sizeof *copy);
    for (unsigned long i = 0; i < count; i++)
        copy[i] = values[i] = next();
    quicksort(values, values + count - 1);
    qsort(copy, count, sizeof *copy, by_value);
    struct node *root = NULL;
    for (unsigned long i = 0; i < count; i++) {
        if (values[i] != copy[i])
            return 1;
        struct node **at = &root;
        unsigned long key = next();
        while (*at)
            at = key < (*at)->key ? &(*at)->left : &(*at)->right;
        *at = calloc(1, sizeof **at);
        (*at)->key = key;
    }
    printf("%lu sorted, median %lx, root %lx\n", count, values[count / 2], root->key);
    return 0;
}
