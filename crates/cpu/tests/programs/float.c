/* Floating point: bodies under gravity, a product of matrices in double and in single precision, and printing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define BODIES 5
#define SIZE 60

static double position[BODIES][3] = {
    {0, 0, 0}, {4.84, -1.16, -0.10}, {8.34, 4.12, -0.40}, {12.89, -15.11, -0.22}, {15.37, -25.91, 0.17}};
static double velocity[BODIES][3] = {
    {0, 0, 0}, {0.60, 2.81, -0.02}, {-1.01, 1.82, 0.008}, {1.08, 0.86, -0.01}, {0.97, 0.59, -0.03}};
static const double mass[BODIES] = {39.47, 0.037, 0.011, 0.0017, 0.002};

static void advance(double dt) {
    for (int i = 0; i < BODIES; i++)
        for (int j = i + 1; j < BODIES; j++) {
            double d[3], square = 0;
            for (int k = 0; k < 3; k++) {
                d[k] = position[i][k] - position[j][k];
                square += d[k] * d[k];
            }
            double magnitude = dt / (square * sqrt(square));
            for (int k = 0; k < 3; k++) {
                velocity[i][k] -= d[k] * mass[j] * magnitude;
                velocity[j][k] += d[k] * mass[i] * magnitude;
            }
        }
    for (int i = 0; i < BODIES; i++)
        for (int k = 0; k < 3; k++)
            position[i][k] += dt * velocity[i][k];
}

static double a[SIZE][SIZE], b[SIZE][SIZE], c[SIZE][SIZE];
static float s[SIZE][SIZE], t[SIZE][SIZE];

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 3;
    for (int i = 0; i < rounds * 500; i++)
        advance(0.01);
    for (int i = 0; i < SIZE; i++)
        for (int j = 0; j < SIZE; j++) {
            a[i][j] = 1.0 / (i + j + 1);
            b[i][j] = sin(i * 0.1) + j;
            s[i][j] = (float)a[i][j];
        }
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < SIZE; i++)
            for (int j = 0; j < SIZE; j++) {
                double sum = 0;
                float single = 0;
                for (int k = 0; k < SIZE; k++) {
                    sum += a[i][k] * b[k][j];
                    single += s[i][k] * s[k][j];
                }
                c[i][j] += sum;
                t[i][j] += single;
            }
    printf("%.17g %.17g %a\n", position[0][0], position[4][2], velocity[1][1]);
    printf("%.17g %.9g %g\n", c[7][9], t[3][5], pow(1.5, 2.25) + exp(0.5) + atan2(1, 3) + fmod(7.25, 0.3));
    printf("%ld %d %lu %f\n", lrint(c[1][2]), (int)t[4][4], (unsigned long)(c[2][3] * 1e3), (double)lround(-2.5));
    return 0;
}
