/* A module for that kernel: mean and variance of a few numbers, by the kernel's own functions too. */

#define HOT __attribute__((section(".text.hot")))

unsigned long polynomial(unsigned long x);
extern unsigned long last_result;

static unsigned long numbers[] = { 2, 4, 4, 4, 5, 5, 7, 9 };
static const unsigned long count = sizeof(numbers) / sizeof(numbers[0]);
static unsigned long asked;

HOT static unsigned long square(unsigned long x)
{
	return x * x;
}

unsigned long mean(void)
{
	unsigned long sum = 0;

	asked++;
	for (unsigned long i = 0; i < count; i++)
		sum += numbers[i];
	return sum / count;
}

unsigned long variance(void)
{
	unsigned long middle = mean(), sum = 0;

	for (unsigned long i = 0; i < count; i++)
		sum += square(numbers[i] > middle ? numbers[i] - middle : middle - numbers[i]);
	return sum / count;
}

unsigned long variance_of_polynomial(void)
{
	numbers[0] = polynomial(1);
	return last_result == numbers[0] ? variance() : 0;
}

unsigned long times_asked(void)
{
	return asked;
}

/* Called when it is loaded; anything but 0 and it is not. */
int init_module(void)
{
	return mean() == 5 ? 0 : -22;
}

/* Called before it is unloaded. */
int cleanup_module(void)
{
	return 0;
}
