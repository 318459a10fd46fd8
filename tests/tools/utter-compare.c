/*
 * utter-compare [--tolerance X] REFERENCE VALUES - how far two files of arrays are apart.
 *
 * One line for each tensor that both files hold and whose name starts with "out.": the largest absolute difference, the
 * largest absolute reference and their ratio. Tensors that only the first file holds are listed as missing. Exit code 1
 * when a ratio exceeds the tolerance, a shape differs or nothing could be compared, else 0.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/reffile.h"

static bool compare_one(const struct ref_array *a, const struct ref_array *b, double tolerance)
{
    if (!ref_same_shape(a, b)) {
        printf("%-40s shapes differ\n", a->name);
        return false;
    }
    double difference, magnitude;
    ref_compare(a, b, &difference, &magnitude);
    const double ratio = difference == 0 ? 0 : difference / magnitude;
    printf("%-40s %12.4e %12.4e %12.4e%s\n", a->name, difference, magnitude, ratio,
           ratio <= tolerance ? "" : "  above the tolerance");
    return ratio <= tolerance;
}

int main(int argc, char **argv)
{
    double tolerance = INFINITY;
    if (argc == 5 && strcmp(argv[1], "--tolerance") == 0) {
        tolerance = strtod(argv[2], NULL);
        argv += 2, argc -= 2;
    }
    if (argc != 3) {
        fprintf(stderr, "usage: utter-compare [--tolerance X] REFERENCE VALUES\n");
        return 2;
    }
    struct reffile a, b;
    struct error e;
    if (reffile_read(&a, argv[1], &e) != UTTER_OK || reffile_read(&b, argv[2], &e) != UTTER_OK) {
        fprintf(stderr, "utter-compare: %s\n", e.text);
        return 2;
    }
    printf("%-40s %12s %12s %12s\n", "tensor", "max |a - b|", "max |a|", "ratio");
    bool good = true;
    int compared = 0;
    for (size_t i = 0; i < a.n; i++) {
        if (strncmp(a.arrays[i].name, "out.", 4) != 0) continue;
        const struct ref_array *other = reffile_find(&b, a.arrays[i].name);
        if (!other)
            printf("%-40s missing\n", a.arrays[i].name);
        else
            good &= compare_one(&a.arrays[i], other, tolerance), compared++;
    }
    printf("%d tensors compared\n", compared);
    reffile_free(&a);
    reffile_free(&b);
    return good && compared ? 0 : 1;
}
